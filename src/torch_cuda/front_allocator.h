// front_allocator.h: stands in front of PyTorch's CUDA allocator, as ours does on the CPU.
//
// A request of a planned step is served at its planned place in the arena of its device. All others, and everything
// else that is asked of an allocator, go to the one behind, which has the blocks, the statistics and the snapshots.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include "torch/runtime.h"

namespace lowtide::torch_runtime {

// Puts it in place, once; gives the allocator behind it.
c10::cuda::CUDACachingAllocator::CUDAAllocator& put_in_front(Runtime& runtime);

}  // namespace lowtide::torch_runtime
