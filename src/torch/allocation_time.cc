#include "allocation_time.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "allocator.h"
#include "eager_replay.h"

namespace lowtide::torch_runtime {
namespace {

double play(std::span<const replay::Action> actions, std::span<const replay::TracedRequest> requests,
            c10::Allocator& allocator, std::vector<c10::DataPtr>& blocks) {
  const auto begin = std::chrono::steady_clock::now();
  for (const replay::Action& action : actions) {
    if (action.releases) {
      blocks[action.request].clear();
    } else {
      blocks[action.request] = allocator.allocate(static_cast<std::size_t>(requests[action.request].bytes));
    }
  }
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

AllocationTime time_allocations(std::span<const replay::TracedRequest> requests,
                                const std::shared_ptr<replay::Script>& script, int rounds) {
  const std::vector<replay::Action> actions = replay::actions_of(requests);
  std::vector<c10::DataPtr> blocks(requests.size());
  EagerReplay& replay = EagerReplay::process();
  std::vector<double> ordinary;
  std::vector<double> replayed;
  for (int round = 0; round < rounds; ++round) {
    ordinary.push_back(play(actions, requests, *c10::GetDefaultCPUAllocator(), blocks));
    replay.begin({script}, replay::Suits::same_size, true);
    replayed.push_back(play(actions, requests, *c10::GetCPUAllocator(), blocks));
    replay.finish();
  }
  return {median(std::move(ordinary)), median(std::move(replayed))};
}

}  // namespace lowtide::torch_runtime
