#include "published/roam/update_assignment.h"

#include <algorithm>
#include <numeric>

#include "order/best.h"
#include "published/roam/segment.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kBranchSteps = 100'000'000;

// Whether a branch holds anything but what is there before it.
bool adds_bytes(const Tasks& tasks, std::span<const Task> branch) {
  return std::ranges::any_of(branch, [&](Task task) {
    return tasks.workspace[task] > 0 ||
           std::ranges::any_of(tasks.touched[task], [&](Held buffer) { return tasks.users[buffer].front() == task; });
  });
}

// By step of the passes: the activations that may be alive there. Equation 5.
std::vector<std::int64_t> activations_alive(const Tasks& tasks, const UpdateBranches& updates, const Waists& waists,
                                            const Turn& turn) {
  std::vector<std::int64_t> alive(waists.steps + 1);
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    if (!turn.activation[buffer]) continue;
    std::uint32_t last = 0;
    for (const Task user : tasks.users[buffer]) {
      if (!updates.in_update[user]) last = std::max(last, waists.latest[user]);
    }
    alive[waists.earliest[tasks.users[buffer].front()]] += tasks.size[buffer];
    alive[last + 1] -= tasks.size[buffer];
  }
  std::partial_sum(alive.begin(), alive.end(), alive.begin());
  return alive;
}

}  // namespace

double derive_alpha(const Tasks& tasks, const UpdateBranches& updates) {
  const auto largest = std::ranges::max_element(updates.gradient);
  if (largest == updates.gradient.end() || *largest == 0) return 0;
  const std::span<const Task> branch = updates.branches[static_cast<std::size_t>(largest - updates.gradient.begin())];
  std::vector<std::uint32_t> alone(tasks.count());
  for (const Task task : branch) alone[task] = 1;
  Work work(kBranchSteps);
  const std::int64_t peak = best_order(Segment(tasks, branch, alone).problem(), 1, work).peak;
  return static_cast<double>(peak) / static_cast<double>(*largest);
}

std::vector<std::uint32_t> assign_updates(const Tasks& tasks, const UpdateBranches& updates, const Waists& waists,
                                          const Turn& turn, const UpdateAssignmentOptions& options) {
  std::vector<std::uint32_t> segment = waists.segment;
  if (!turn.segment || updates.branches.size() == 0) return segment;
  const std::vector<std::int64_t> alive = activations_alive(tasks, updates, waists, turn);
  std::int64_t all_activations = 0;  // equation 4
  std::int64_t all = 0;
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    all += tasks.size[buffer];
    all_activations += turn.activation[buffer] ? tasks.size[buffer] : 0;
  }
  const double average = static_cast<double>(all) / static_cast<double>(tasks.size.size());
  const double alpha = options.alpha ? *options.alpha : derive_alpha(tasks, updates);
  const auto last_segment = static_cast<std::uint32_t>(waists.num_segments() - 1);

  for (std::size_t branch = 0; branch < updates.branches.size(); ++branch) {
    const std::span<const Task> members = updates.branches[branch];
    const auto gradient = static_cast<double>(updates.gradient[branch]);
    if (gradient <= options.delay_radius * average || !adds_bytes(tasks, members)) continue;
    std::uint32_t soonest = 0;
    std::uint32_t step = 0;
    for (const Task task : members) {
      soonest = std::max(soonest, waists.segment[task]);
      for (const OpId need : tasks.needs.predecessors[task]) {
        if (!updates.in_update[need.index()]) step = std::max(step, waists.earliest[need.index()] + 1);
      }
    }
    std::uint32_t chosen = soonest;
    const auto used = [&] {  // equation 6
      const std::uint32_t at = chosen == soonest ? step : waists.step_before(chosen) + 1;
      return static_cast<double>(alive[std::min(at, waists.steps)]) + alpha * gradient;
    };
    while (chosen < last_segment && used() > static_cast<double>(all_activations)) ++chosen;
    if (chosen == soonest) continue;
    for (const Task task : members) segment[task] = chosen;
  }
  // A branch may need what another does.
  for (Task task = 0; task < tasks.count(); ++task) {
    if (!updates.in_update[task]) continue;
    for (const OpId need : tasks.needs.predecessors[task]) {
      segment[task] = std::max(segment[task], segment[need.index()]);
    }
  }
  return segment;
}

}  // namespace lowtide
