#include "best_order.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

namespace lowtide {
namespace {

using Set = std::uint32_t;  // a bit for each task
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// Bytes held while `task` runs, once `done` has run.
std::int64_t held_after(const Tasks& tasks, Set done, Task task) {
  const Set begun = done | Set{1} << task;
  const auto users_of = [&](Held buffer) {
    Set users = 0;
    for (const Task user : tasks.users[buffer]) users |= Set{1} << user;
    return users;
  };
  const auto over_after = [&](Set run, Held buffer) { return (users_of(buffer) & ~run) == 0 && !tasks.kept[buffer]; };
  std::int64_t held = tasks.workspace[task];
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    const std::span<const TaskReuse> reuses = tasks.reuses[task];
    const bool in_place = std::any_of(reuses.begin(), reuses.end(), [&](const TaskReuse& reuse) {
      return reuse.to == buffer && over_after(begun, reuse.from);
    });
    if ((users_of(buffer) & begun) != 0 && !over_after(done, buffer) && !in_place) held += tasks.size[buffer];
  }
  return held;
}

// Visits each set that can have run, with each task that can run next: visit(done, task). Smaller sets come first.
template <typename Visit>
void for_each_step(const Tasks& tasks, const Visit& visit) {
  const std::size_t count = tasks.count();
  if (count > 20) std::abort();
  std::vector<Set> before(count);
  for (Task task = 0; task < count; ++task) {
    for (const OpId needed : tasks.needs.predecessors[task]) before[task] |= Set{1} << needed.index();
  }
  std::vector<bool> reached(std::size_t{1} << count);
  reached[0] = true;
  for (Set done = 0; done < reached.size(); ++done) {
    if (!reached[done]) continue;
    for (Task task = 0; task < count; ++task) {
      if ((done >> task & 1) != 0 || (before[task] & ~done) != 0) continue;
      reached[done | Set{1} << task] = true;
      visit(done, task);
    }
  }
}

}  // namespace

std::int64_t best_peak(const Tasks& tasks) {
  std::vector<std::int64_t> best(std::size_t{1} << tasks.count(), kMost);  // by set: the smallest peak until it has run
  best[0] = 0;
  for_each_step(tasks, [&](Set done, Task task) {
    std::int64_t& next = best[done | Set{1} << task];
    next = std::min(next, std::max(best[done], held_after(tasks, done, task)));
  });
  return best.back();
}

std::vector<std::int64_t> least_held(const Tasks& tasks) {
  std::vector<std::int64_t> least(tasks.count(), kMost);
  for_each_step(tasks,
                [&](Set done, Task task) { least[task] = std::min(least[task], held_after(tasks, done, task)); });
  return least;
}

}  // namespace lowtide
