// cuBLAS: handles and settings are kept, products are counted as launches and not computed. Arguments that nothing is
// written to are left out of the signatures.
#include "interface.h"

#define API EMULATED_CUDA_API
#define SUCCEEDS(function) \
  API int function() {     \
    return 0;              \
  }
#define COMPUTES(function)                \
  API int function() {                    \
    emulated_cuda_note_launch(#function); \
    return 0;                             \
  }
#define COMPUTES_IN_ALL_TYPES(function) \
  COMPUTES(cublasS##function) COMPUTES(cublasD##function) COMPUTES(cublasC##function) COMPUTES(cublasZ##function)

struct Handle {
  int math_mode = 0;
  int pointer_mode = 0;
};

API int cublasCreate_v2(Handle** handle) {
  *handle = new Handle;
  return 0;
}
API int cublasDestroy_v2(Handle* handle) {
  delete handle;
  return 0;
}
API int cublasSetMathMode(Handle* handle, int mode) {
  handle->math_mode = mode;
  return 0;
}
API int cublasGetMathMode(Handle* handle, int* mode) {
  *mode = handle->math_mode;
  return 0;
}
API int cublasSetPointerMode_v2(Handle* handle, int mode) {
  handle->pointer_mode = mode;
  return 0;
}
API int cublasGetPointerMode_v2(Handle* handle, int* mode) {
  *mode = handle->pointer_mode;
  return 0;
}
SUCCEEDS(cublasSetStream_v2)
SUCCEEDS(cublasSetWorkspace_v2)
SUCCEEDS(cublasSetSmCountTarget)
COMPUTES_IN_ALL_TYPES(gemm_v2)
COMPUTES_IN_ALL_TYPES(gemmStridedBatched)
COMPUTES_IN_ALL_TYPES(gemmBatched)
COMPUTES_IN_ALL_TYPES(gemv_v2)
COMPUTES_IN_ALL_TYPES(trsm_v2)
COMPUTES_IN_ALL_TYPES(trsmBatched)
COMPUTES(cublasSgemmEx)
COMPUTES(cublasGemmEx)
COMPUTES(cublasGemmStridedBatchedEx)
COMPUTES(cublasSdot_v2)
COMPUTES(cublasDdot_v2)
COMPUTES(cublasDotEx)
