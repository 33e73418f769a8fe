#include "poison.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include "../runtime/interface.h"

namespace emulated_cuda {

void poison_what_is_freed() {
  using Entry = c10::CachingDeviceAllocator::TraceEntry;
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([](const Entry& entry) {
    if (entry.action_ != Entry::FREE_COMPLETED || emulated_cuda_poisons() == 0) return;
    emulated_cuda_poison(entry.stream_, reinterpret_cast<void*>(entry.addr_), entry.size_);
  });
}

}  // namespace emulated_cuda
