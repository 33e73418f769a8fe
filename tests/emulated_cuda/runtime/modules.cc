// The driver's functions for kernels that are compiled at run time: a module is its name, launches are counted.
#include <cuda.h>

#include <algorithm>

#include "interface.h"
#include "operators.h"

#define API EMULATED_CUDA_API

static char the_module;

API CUresult cuModuleLoadData(CUmodule* module, const void*) {
  *module = reinterpret_cast<CUmodule>(&the_module);
  return CUDA_SUCCESS;
}
API CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) {
  *function = reinterpret_cast<CUfunction>(&the_module);
  return CUDA_SUCCESS;
}
API CUresult cuModuleUnload(CUmodule) {
  return CUDA_SUCCESS;
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int threads, size_t) {
  *blocks = std::max(1, 1536 / std::max(threads, 1));
  return CUDA_SUCCESS;
}
API CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                            void**, void**) {
  emulated_cuda::note_launch("a kernel compiled at run time");
  return CUDA_SUCCESS;
}
