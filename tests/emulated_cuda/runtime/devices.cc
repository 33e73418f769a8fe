// Devices: how many, what they are, which is current. The figures are those of an L4 unless they are declared.
#include "devices.h"

#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "figures.h"
#include "interface.h"
#include "memory.h"
#include "streams.h"

#define API EMULATED_CUDA_API

namespace emulated_cuda {
namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;

constexpr int kVersion = 13000;

int attribute(int which) {
  switch (which) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return 1024;
    case cudaDevAttrMaxBlockDimZ:
      return 64;
    case cudaDevAttrMaxGridDimX:
    case cudaDevAttrMaxPitch:
      return 2147483647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 49152;
    case cudaDevAttrTotalConstantMemory:
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return 65536;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMultiProcessorCount:
      return figures().multiprocessors;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return 1;
    case cudaDevAttrAsyncEngineCount:
      return 2;
    case cudaDevAttrL2CacheSize:
      return 48 << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return 1536;
    case cudaDevAttrComputeCapabilityMajor:
      return figures().compute_capability / 10;
    case cudaDevAttrComputeCapabilityMinor:
      return figures().compute_capability % 10;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return 102400;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return 101376;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return 24;
    default:
      return 0;
  }
}

}  // namespace

int current_device() {
  return device_of_thread;
}
cudaError_t fail(cudaError_t error) {
  return last_error = error;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

API cudaError_t cudaGetDeviceCount(int* count) {
  *count = figures().devices;
  return cudaSuccess;
}
API cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}
API cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= figures().devices) return fail(cudaErrorInvalidDevice);
  device_of_thread = device;
  return cudaSuccess;
}
API cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}
API cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  *value = attribute(which);
  return cudaSuccess;
}
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::snprintf(p->name, sizeof p->name, "%s", figures().name.c_str());
  for (int i = 0; i < 16; ++i) p->uuid.bytes[i] = static_cast<char>(i + 1);
  p->totalGlobalMem = figures().memory;
  p->sharedMemPerBlock = 49152;
  p->sharedMemPerBlockOptin = 101376;
  p->sharedMemPerMultiprocessor = 102400;
  p->reservedSharedMemPerBlock = 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->memPitch = 2147483647;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = figures().compute_capability / 10;
  p->minor = figures().compute_capability % 10;
  p->textureAlignment = 512;
  p->texturePitchAlignment = 32;
  p->multiProcessorCount = figures().multiprocessors;
  p->concurrentKernels = p->unifiedAddressing = 1;
  p->asyncEngineCount = 2;
  p->memoryBusWidth = 192;
  p->l2CacheSize = 48 << 20;
  p->maxThreadsPerMultiProcessor = 1536;
  p->maxBlocksPerMultiProcessor = 24;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
API cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}
API cudaError_t cudaDeviceSynchronize() {
  const Lock lock;
  synchronize_all();
  return cudaSuccess;
}
API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Lock lock;
  *free = free_bytes(current_device());
  *total = figures().memory;
  return cudaSuccess;
}
API cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
API cudaError_t cudaPeekAtLastError() {
  return last_error;
}
API const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    default:
      return "an error of emulated CUDA";
  }
}
API const char* cudaGetErrorName(cudaError_t error) {
  return cudaGetErrorString(error);
}
API cudaError_t cudaProfilerStart() {
  return cudaSuccess;
}
API cudaError_t cudaProfilerStop() {
  return cudaSuccess;
}
