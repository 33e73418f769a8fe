// allocation_time.h: how long allocation takes by itself: the requests and releases of an iteration, without operators.
#pragma once

#include <memory>
#include <span>

#include "replay/script.h"
#include "replay/trace.h"

namespace lowtide::torch_runtime {

struct AllocationTime {
  double ordinary_nanos;  // of all requests and releases, by PyTorch's own allocator
  double replayed_nanos;  // and served by the script
};

// Medians of so many rounds, in which both take turns, as in use: an iteration is recorded while it is served. Nothing
// is written to the memory. The calling thread must have no iteration under way. Throws c10::Error if memory runs out.
AllocationTime time_allocations(std::span<const replay::TracedRequest> requests,
                                const std::shared_ptr<replay::Script>& script, int rounds);

}  // namespace lowtide::torch_runtime
