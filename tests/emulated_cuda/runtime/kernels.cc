// Kernels: registered, counted, never run.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>
#include <vector>

#include "devices.h"
#include "figures.h"
#include "interface.h"
#include "memory.h"
#include "operators.h"

#define API EMULATED_CUDA_API

using namespace emulated_cuda;

namespace {

std::unordered_map<const void*, const char*>& kernel_names() {
  static auto* const made = new std::unordered_map<const void*, const char*>;
  return *made;
}
struct Variable {
  std::size_t bytes = 0;
  char* address = nullptr;
};
std::unordered_map<const void*, Variable>& variables() {
  static auto* const made = new std::unordered_map<const void*, Variable>;
  return *made;
}

struct Call {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
thread_local std::vector<Call> calls;

cudaError_t launch(const void* kernel) {
  const Lock lock;
  const auto found = kernel_names().find(kernel);
  note_launch(found != kernel_names().end() ? found->second : "a kernel without a name");
  return cudaSuccess;
}

}  // namespace

API void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API char __cudaInitModule(void**) {
  return 1;
}
API void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                                int*) {
  const Lock lock;
  kernel_names()[host] = name;
}
API void __cudaRegisterVar(void**, char* host, char*, const char*, int, size_t bytes, int, int) {
  const Lock lock;
  variables()[host].bytes = bytes;
}
API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  calls.push_back({grid, block, shared, stream});
  return 0;
}
API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (calls.empty()) return fail(cudaErrorInvalidConfiguration);
  const Call call = calls.back();
  calls.pop_back();
  *grid = call.grid;
  *block = call.block;
  *shared = call.shared;
  *static_cast<void**>(stream) = call.stream;
  return cudaSuccess;
}
API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return launch(kernel);
}
API cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return launch(kernel);
}
API cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  return launch(kernel);
}
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* kernel, void**) {
  return launch(kernel);
}

API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) {
  *a = {};
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->maxDynamicSharedSizeBytes = 49152;
  for (const int built_for : {75, 80, 86, 90, 100, 120}) {  // CUB refuses a version that the wheel is not built for
    if (built_for <= figures().compute_capability) a->ptxVersion = a->binaryVersion = built_for;
  }
  return cudaSuccess;
}
API cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
API cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) {
  return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads, size_t,
                                                                       unsigned) {
  *blocks = std::max(1, 1536 / std::max(threads, 1));
  return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                              size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}

// A variable's memory belongs to the context: it is not counted as taken.
API cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  const Lock lock;
  Variable& variable = variables()[symbol];
  if (variable.address == nullptr) {
    const std::size_t bytes = round_up(std::max<std::size_t>(variable.bytes, 8), kPage);
    variable.address = reserve(bytes);
    back(variable.address, bytes);
  }
  *address = variable.address;
  return cudaSuccess;
}
API cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                                   cudaMemcpyKind kind) {
  void* address = nullptr;
  cudaGetSymbolAddress(&address, symbol);
  return cudaMemcpy(static_cast<char*>(address) + offset, from, bytes, kind);
}
