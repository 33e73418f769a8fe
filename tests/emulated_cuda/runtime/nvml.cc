// NVML: it is there, and reports no processes and no links. The caching allocator asks it when memory runs out, and
// finds its functions by name.
#include "interface.h"

#define API EMULATED_CUDA_API
constexpr int kNotSupported = 3;

API int nvmlInit_v2() {
  return 0;
}
API int nvmlDeviceGetHandleByPciBusId_v2() {
  return 0;
}
API int nvmlDeviceGetGpuFabricInfoV() {
  return 0;
}
API int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}
API int nvmlDeviceGetNvLinkRemoteDeviceType() {
  return kNotSupported;
}
API int nvmlDeviceGetNvLinkRemotePciInfo_v2() {
  return kNotSupported;
}
API int nvmlSystemGetCudaDriverVersion_v2() {
  return kNotSupported;
}
