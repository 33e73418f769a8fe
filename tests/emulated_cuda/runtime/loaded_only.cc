// Libraries that PyTorch asks for a version, and then leaves alone: cuDNN (it must be off), cuPTI, NCCL.
#include <cstddef>

#include "interface.h"

#define API EMULATED_CUDA_API

API std::size_t cudnnGetVersion() {
  return 92000;
}
API std::size_t cudnnGetCudartVersion() {
  return 13000;
}
API const char* cudnnGetErrorString(int) {
  return "emulated CUDA has no cuDNN";
}
API int cuptiGetVersion(unsigned* version) {
  *version = 130000;
  return 0;
}
API int ncclGetVersion(int* version) {
  *version = 22907;
  return 0;
}
