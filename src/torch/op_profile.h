// op_profile.h: what one operator asks of memory and of time, found by running it alone.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <vector>

namespace lowtide::torch_runtime {

// One request of the operator, in the order it makes them. `begin` and `end` count the allocator's events inside the
// call: a request that is still held when the operator returns has no end, and is either one of its results or
// something it keeps.
struct ProfiledRequest {
  std::int64_t bytes;
  std::int64_t begin;
  std::int64_t end;     // -1: survives the call
  std::int64_t result;  // the returned tensor whose storage it is, or -1
};

struct OpProfile {
  std::vector<ProfiledRequest> requests;
  std::vector<at::Tensor> results;
  std::int64_t nanos = 0;  // what it takes among other operators
};

// Runs `op` on these arguments once to warm it, then up to `timed_runs` times with warm caches and as often with swept
// ones, then once to see its requests; with no timed runs only that last time. The arguments are scratch: they are
// written to where the operator writes. `grad_mode` says whether gradients are enabled, for operators that look.
// Requests are those on the device `where`; on one that is not the CPU it is always warmed, since what operators keep
// for themselves is made in their first calls.
OpProfile profile_op(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, int timed_runs, bool grad_mode,
                     c10::Device where);

}  // namespace lowtide::torch_runtime
