// cuBLASLt: descriptors are blank memory; every product has an algorithm that needs no workspace of its own.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "interface.h"

#define API EMULATED_CUDA_API
#define SUCCEEDS(function) \
  API int function() {     \
    return 0;              \
  }

namespace {

constexpr std::size_t kDescriptorBytes = 512;  // more than any descriptor of cuBLASLt

int create(void** descriptor) {
  *descriptor = std::calloc(1, kDescriptorBytes);
  return 0;
}
int destroy(void* descriptor) {
  std::free(descriptor);
  return 0;
}

struct HeuristicResult {  // as in cublasLt.h
  std::uint64_t algorithm[8];
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

}  // namespace

API std::size_t cublasLtGetVersion() {
  return 130101;
}
API int cublasLtMatmulDescCreate(void** descriptor, int, int) {
  return create(descriptor);
}
API int cublasLtMatmulDescDestroy(void* descriptor) {
  return destroy(descriptor);
}
API int cublasLtMatmulPreferenceCreate(void** descriptor) {
  return create(descriptor);
}
API int cublasLtMatmulPreferenceDestroy(void* descriptor) {
  return destroy(descriptor);
}
API int cublasLtMatrixLayoutCreate(void** descriptor, int, std::uint64_t, std::uint64_t, std::int64_t) {
  return create(descriptor);
}
API int cublasLtMatrixLayoutDestroy(void* descriptor) {
  return destroy(descriptor);
}
SUCCEEDS(cublasLtMatmulDescSetAttribute)
SUCCEEDS(cublasLtMatmulPreferenceSetAttribute)
SUCCEEDS(cublasLtMatrixLayoutSetAttribute)
API int cublasLtMatmul() {
  emulated_cuda_note_launch("cublasLtMatmul");
  return 0;
}
API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int wanted,
                                       HeuristicResult* results, int* found) {
  for (int i = 0; i < wanted; ++i) results[i] = {};
  *found = wanted;
  return 0;
}
