#include "op_profile.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>

#include "allocator.h"
#include "device.h"
#include "queue_clock.h"

namespace lowtide::torch_runtime {
namespace {

using Clock = std::chrono::steady_clock;

// In a step other operators ran since, and an operator finds only a part of its operands and of its own code in the
// caches. How much it does not find depends on its place. One share for all is a fit: to twelve small models of the
// benchmark, by single operators' lower quartiles, square roots left out because their time depends on values.
constexpr double kColdShare = 0.25;

// What is timed longer than this is timed well enough.
constexpr auto kEnough = std::chrono::milliseconds(50);

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

void deliver(const std::vector<at::Tensor>& results, const ProfiledDelivery& delivery) {
  const at::Tensor& result = results.at(static_cast<std::size_t>(delivery.result));
  delivery.adds ? delivery.place.add_(result) : delivery.place.copy_(result);
}

// As a program does it, with no gradients around copies.
void deliver_all(const torch::jit::Stack& stack, const std::vector<ProfiledDelivery>& deliveries) {
  if (deliveries.empty()) return;
  const at::AutoGradMode no_grad(false);
  std::vector<at::Tensor> results;
  for (const c10::IValue& result : stack) collect_tensors(result, &results);
  for (const ProfiledDelivery& delivery : deliveries) deliver(results, delivery);
}

// Memory to walk through so that nothing else is left in the caches of this core.
class Sweep {
 public:
  Sweep() : memory_(2 * cache_bytes()) {}
  void run() {
    volatile char* const memory = memory_.data();  // volatile: written although nobody reads it
    for (std::size_t line = 0; line < memory_.size(); line += 64) memory[line] = 1;
  }

 private:
  static std::size_t cache_bytes() {
    const long told = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return told > 0 ? static_cast<std::size_t>(told) : std::size_t{2} << 20;
  }
  std::vector<char> memory_;
};

// Other processes only ever add time.
std::int64_t lower_quartile(std::vector<std::int64_t> values) {
  const auto quarter = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), quarter, values.end());
  return *quarter;
}

// Nanoseconds that a call takes in a step: as the executor makes it, from arguments on the stack to dropped results.
std::int64_t time_op(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, int timed_runs,
                     c10::Device where, const std::vector<ProfiledDelivery>& deliveries) {
  torch::jit::Stack stack;
  std::optional<QueueClock> queue;
  if (!where.is_cpu()) queue.emplace(where);
  const auto timed = [&]() -> std::int64_t {
    if (queue) queue->begin();
    const auto start = Clock::now();
    stack.assign(arguments.begin(), arguments.end());
    op.callBoxed(stack);
    deliver_all(stack, deliveries);
    stack.clear();
    return queue ? queue->nanos() : std::chrono::nanoseconds(Clock::now() - start).count();
  };
  Sweep sweep;
  std::vector<std::int64_t> warm;
  std::vector<std::int64_t> cold;
  const auto begin = Clock::now();
  for (int run = 0; run < timed_runs && (run == 0 || Clock::now() - begin < kEnough); ++run) {
    warm.push_back(timed());
    sweep.run();
    cold.push_back(timed());
  }
  const auto shortest = static_cast<double>(lower_quartile(std::move(warm)));
  const auto longest = std::max(shortest, static_cast<double>(lower_quartile(std::move(cold))));
  return std::max<std::int64_t>(1, std::llround(shortest + kColdShare * (longest - shortest)));
}

}  // namespace

OpProfile profile_op(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, int timed_runs, bool grad_mode,
                     c10::Device where, const std::vector<ProfiledDelivery>& deliveries) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::AutoGradMode as_captured(grad_mode);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);

  torch::jit::Stack stack;
  OpProfile profile;
  std::optional<Keeping> pages;
  if (timed_runs > 0) pages.emplace();
  if (timed_runs > 0 || !where.is_cpu()) {
    stack = arguments;
    op.callBoxed(stack);
    deliver_all(stack, deliveries);
    stack.clear();
    wait_for(where);
  }
  if (timed_runs > 0) profile.nanos = time_op(op, arguments, timed_runs, where, deliveries);
  std::vector<RecordedEvent> events;
  events.reserve(64);
  stack = arguments;
  std::vector<std::pair<std::size_t, const void*>> delivered;  // events before a delivery, and what it delivers
  {
    const Recording recording(&events);
    op.callBoxed(stack);
    for (const c10::IValue& result : stack) collect_tensors(result, &profile.results);
    stack.clear();
    const at::AutoGradMode no_grad(false);
    for (const ProfiledDelivery& delivery : deliveries) {
      const at::Tensor& result = profile.results.at(static_cast<std::size_t>(delivery.result));
      delivered.emplace_back(events.size(), result.storage().data());
      deliver(profile.results, delivery);
    }
    for (const ProfiledDelivery& delivery : deliveries) {
      profile.results[static_cast<std::size_t>(delivery.result)] = at::Tensor();
    }
  }

  std::unordered_map<const void*, std::size_t> open;  // address -> request that is held there
  const auto note_result = [&](const void* address, std::size_t result) {
    const auto found = open.find(address);
    if (found == open.end()) return;
    ProfiledRequest& request = profile.requests[found->second];
    if (request.result < 0) request.result = static_cast<std::int64_t>(result);
  };
  std::int64_t when = 0;  // counts events on the device
  int delivers = -1;
  for (std::size_t e = 0; e < events.size(); ++e) {
    for (std::size_t d = 0; d < delivered.size(); ++d) {
      if (delivered[d].first != e) continue;
      delivers = deliveries[d].result;
      note_result(delivered[d].second, static_cast<std::size_t>(delivers));
    }
    if (events[e].where != where) continue;
    if (events[e].allocates) {
      open[events[e].address] = profile.requests.size();
      profile.requests.push_back({events[e].bytes, when, -1, -1, delivers});
    } else if (const auto found = open.find(events[e].address); found != open.end()) {
      profile.requests[found->second].end = when;
      open.erase(found);
    }
    ++when;
  }
  for (std::size_t r = 0; r < profile.results.size(); ++r) {
    const at::Tensor& result = profile.results[r];
    if (result.defined() && result.has_storage()) note_result(result.storage().data(), r);
  }
  return profile;
}

}  // namespace lowtide::torch_runtime
