// NVRTC, which PyTorch compiles some kernels with when they are first used: every program compiles, to one byte.
#include <cstddef>

#include "interface.h"

#define API EMULATED_CUDA_API
#define SUCCEEDS(function) \
  API int function() {     \
    return 0;              \
  }
#define GIVES(function, type, value)      \
  API int function(void*, type* result) { \
    *result = value;                      \
    return 0;                             \
  }

API int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
API int nvrtcCreateProgram(void** program) {
  static char the_program;
  *program = &the_program;
  return 0;
}
API const char* nvrtcGetErrorString(int) {
  return "an error of emulated CUDA";
}
API int nvrtcGetLoweredName(void*, const char*, const char** lowered) {
  *lowered = "a compiled kernel";
  return 0;
}
SUCCEEDS(nvrtcAddNameExpression)
SUCCEEDS(nvrtcCompileProgram)
SUCCEEDS(nvrtcDestroyProgram)
GIVES(nvrtcGetCUBINSize, std::size_t, 1)
GIVES(nvrtcGetPTXSize, std::size_t, 1)
GIVES(nvrtcGetProgramLogSize, std::size_t, 1)
GIVES(nvrtcGetCUBIN, char, 0)
GIVES(nvrtcGetPTX, char, 0)
GIVES(nvrtcGetProgramLog, char, 0)
