// The current device of a thread, and its last error, as every part of the runtime sets it.
#pragma once

#include <cuda_runtime_api.h>

namespace emulated_cuda {

int current_device();

// Keeps the error for cudaGetLastError, and returns it.
cudaError_t fail(cudaError_t error);

}  // namespace emulated_cuda
