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
  std::int64_t result;  // the returned tensor whose storage it is, or -1; of one that is delivered, too
  int delivers = -1;    // the result that was being delivered when it was made, or -1: the operator's own
};

// A result of a part that is copied or added to where it belongs, as a program does it; then it is dropped.
struct ProfiledDelivery {
  int result;
  at::Tensor place;
  bool adds;
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
// for themselves is made in their first calls. What is delivered is not among the results.
OpProfile profile_op(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, int timed_runs, bool grad_mode,
                     c10::Device where, const std::vector<ProfiledDelivery>& deliveries = {});

}  // namespace lowtide::torch_runtime
