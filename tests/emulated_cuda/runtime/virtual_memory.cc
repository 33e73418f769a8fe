// The driver's functions for virtual memory, which expandable segments use: reserve addresses, create memory, map it.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <map>

#include "figures.h"
#include "interface.h"
#include "memory.h"
#include "streams.h"

#define API EMULATED_CUDA_API

using namespace emulated_cuda;

namespace {

struct Created {
  std::size_t bytes = 0;
  int device = 0;
};
std::map<CUmemGenericAllocationHandle, Created>& created() {
  static auto* const made = new std::map<CUmemGenericAllocationHandle, Created>;
  return *made;
}
char* pointer(CUdeviceptr address) {
  return reinterpret_cast<char*>(address);
}

}  // namespace

API CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}
API CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
API CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_SUCCESS               ? "no error"
          : error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory"
                                              : "an error of emulated CUDA";
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  return static_cast<CUresult>(cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(which), device));
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext* context) {
  static char the_context;
  *context = reinterpret_cast<CUcontext>(&the_context);
  return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  return cuCtxGetCurrent(context);
}
API CUresult cuCtxSetCurrent(CUcontext) {
  return CUDA_SUCCESS;
}

API CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                           CUmemAllocationGranularity_flags) {
  *bytes = kPage;
  return CUDA_SUCCESS;
}
API CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  const Lock lock;
  char* const at = reserve(round_up(bytes, kPage));
  *address = reinterpret_cast<CUdeviceptr>(at);
  return at == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
API CUresult cuMemAddressFree(CUdeviceptr address, size_t) {
  const Lock lock;
  return unreserve(pointer(address)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                         unsigned long long) {
  const Lock lock;
  static CUmemGenericAllocationHandle last = 0;
  const int device = properties->location.id;
  if (!take(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  created()[*handle = ++last] = {bytes, device};
  return CUDA_SUCCESS;
}
API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Lock lock;
  const auto found = created().find(handle);
  if (found == created().end()) return CUDA_ERROR_INVALID_VALUE;
  give_back(found->second.device, found->second.bytes);
  created().erase(found);
  return CUDA_SUCCESS;
}
// Memory has its bytes while it is mapped: nothing here maps a handle twice.
API CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
                      unsigned long long) {
  const Lock lock;
  if (!created().contains(handle)) return CUDA_ERROR_INVALID_VALUE;
  back(pointer(address), bytes);
  return CUDA_SUCCESS;
}
API CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  return CUDA_SUCCESS;
}
API CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  const Lock lock;
  synchronize_all();
  for (char* at = pointer(address); at < pointer(address) + bytes;) {
    const Extent mapped = extent_of(at);
    if (mapped.begin != at) return CUDA_ERROR_INVALID_VALUE;
    unback(at, mapped.bytes);
    at += mapped.bytes;
  }
  return CUDA_SUCCESS;
}
API CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  const Lock lock;
  const Extent found = extent_of(pointer(address));
  if (found.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (base != nullptr) *base = reinterpret_cast<CUdeviceptr>(found.begin);
  if (bytes != nullptr) *bytes = found.bytes;
  return CUDA_SUCCESS;
}

static CUresult not_supported() {
  return CUDA_ERROR_NOT_SUPPORTED;
}

API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                 cudaDriverEntryPointQueryResult* status) {
  static void* const self = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
  *function = dlsym(self, name);
  if (*function == nullptr) *function = reinterpret_cast<void*>(&not_supported);
  if (status != nullptr) *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
