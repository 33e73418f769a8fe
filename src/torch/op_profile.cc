#include "op_profile.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <unordered_map>

#include "allocator.h"

namespace lowtide::torch_runtime {
namespace {

class Recording {
 public:
  explicit Recording(std::vector<RecordedEvent>* events) { start_recording(events); }
  ~Recording() { stop_recording(); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

void collect_tensors(const c10::IValue& value, std::vector<at::Tensor>* tensors) {
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) tensors->push_back(tensor);
  } else {
    tensors->push_back(value.isTensor() ? value.toTensor() : at::Tensor());
  }
}

}  // namespace

OpProfile profile_op(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, int timed_runs,
                     bool grad_mode) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::AutoGradMode as_captured(grad_mode);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);

  torch::jit::Stack stack = arguments;
  op.callBoxed(stack);

  OpProfile profile;
  profile.nanos = std::numeric_limits<std::int64_t>::max();
  std::vector<RecordedEvent> events;
  events.reserve(64);
  for (int run = 0; run < timed_runs; ++run) {
    stack = arguments;
    events.clear();
    {
      const Recording recording(&events);
      const auto start = std::chrono::steady_clock::now();
      op.callBoxed(stack);
      const auto taken = std::chrono::steady_clock::now() - start;
      profile.nanos =
          std::min<std::int64_t>(profile.nanos, std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count());
    }
  }

  std::unordered_map<const void*, std::size_t> open;  // address -> request that is held there
  for (std::size_t e = 0; e < events.size(); ++e) {
    const auto when = static_cast<std::int64_t>(e);
    if (events[e].allocates) {
      open[events[e].address] = profile.requests.size();
      profile.requests.push_back({events[e].bytes, when, -1, -1});
    } else if (const auto found = open.find(events[e].address); found != open.end()) {
      profile.requests[found->second].end = when;
      open.erase(found);
    }
  }
  for (const c10::IValue& result : stack) collect_tensors(result, &profile.results);
  for (std::size_t r = 0; r < profile.results.size(); ++r) {
    const at::Tensor& result = profile.results[r];
    if (!result.defined() || !result.has_storage()) continue;
    const auto found = open.find(result.storage().data());
    if (found == open.end()) continue;
    ProfiledRequest& request = profile.requests[found->second];
    if (request.result < 0) request.result = static_cast<std::int64_t>(r);
  }
  return profile;
}

}  // namespace lowtide::torch_runtime
