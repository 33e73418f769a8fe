// Device memory and pinned memory. Freeing either waits for the whole device, as in CUDA.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>

#include "devices.h"
#include "interface.h"
#include "memory.h"
#include "streams.h"

#define API EMULATED_CUDA_API

using namespace emulated_cuda;

namespace {

std::map<char*, int>& device_of() {  // of each allocation
  static auto* const made = new std::map<char*, int>;
  return *made;
}
std::size_t pages(std::size_t bytes) {
  return round_up(std::max<std::size_t>(bytes, 1), 4096);
}

}  // namespace

API cudaError_t cudaMalloc(void** address, size_t bytes) {
  const Lock lock;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  const std::size_t taken = round_up(bytes, kPage);
  if (!take(current_device(), taken)) return fail(cudaErrorMemoryAllocation);
  char* const at = reserve(taken);
  if (at == nullptr) return fail(cudaErrorMemoryAllocation);
  back(at, taken);
  device_of()[at] = current_device();
  *address = at;
  return cudaSuccess;
}
API cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  const Lock lock;
  synchronize_all();
  char* const at = static_cast<char*>(address);
  const auto found = device_of().find(at);
  if (found == device_of().end()) return fail(cudaErrorInvalidValue);
  const std::size_t bytes = extent_of(at).bytes;
  give_back(found->second, bytes);
  device_of().erase(found);
  unback(at, bytes);
  unreserve(at);
  return cudaSuccess;
}
API cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  const Lock lock;
  *address = mmap(nullptr, pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*address == MAP_FAILED) return fail(cudaErrorMemoryAllocation);
  set_pinned(*address, pages(bytes));
  return cudaSuccess;
}
API cudaError_t cudaFreeHost(void* address) {
  if (address == nullptr) return cudaSuccess;
  const Lock lock;
  synchronize_all();
  const std::size_t bytes = unset_pinned(address);
  if (bytes == 0) return fail(cudaErrorInvalidValue);
  munmap(address, bytes);
  return cudaSuccess;
}
API cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  const Lock lock;
  set_pinned(address, bytes);
  return cudaSuccess;
}
API cudaError_t cudaHostUnregister(void* address) {
  const Lock lock;
  synchronize_all();
  return unset_pinned(address) == 0 ? fail(cudaErrorInvalidValue) : cudaSuccess;
}
API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* address) {
  const Lock lock;
  *a = {};
  void* const at = const_cast<void*>(address);
  if (is_device(at)) {
    a->type = cudaMemoryTypeDevice;
    a->devicePointer = at;
  } else if (is_pinned(at)) {
    a->type = cudaMemoryTypeHost;
    a->hostPointer = a->devicePointer = at;
  } else {
    a->type = cudaMemoryTypeUnregistered;
    a->device = -2;
    a->hostPointer = at;
  }
  return cudaSuccess;
}
