#include "best_order.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

namespace lowtide {
namespace {

using Set = std::uint32_t;  // a bit for each task

// Bytes held while `task` runs, once `done` has run.
std::int64_t held_after(const Tasks& tasks, Set done, Task task) {
  const Set begun = done | Set{1} << task;
  std::int64_t held = tasks.workspace[task];
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    Set users = 0;
    for (const Task user : tasks.users[buffer]) users |= Set{1} << user;
    const bool over = (users & ~done) == 0 && !tasks.kept[buffer];
    if ((users & begun) != 0 && !over) held += tasks.size[buffer];
  }
  return held;
}

}  // namespace

std::int64_t best_peak(const Tasks& tasks) {
  const std::size_t count = tasks.count();
  if (count > 20) std::abort();
  std::vector<Set> before(count);
  for (Task task = 0; task < count; ++task) {
    for (const OpId needed : tasks.needs.predecessors[task]) before[task] |= Set{1} << needed.index();
  }
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> best(std::size_t{1} << count, kNone);  // by set: the smallest peak until it has run
  best[0] = 0;
  for (Set done = 0; done < best.size(); ++done) {
    if (best[done] == kNone) continue;
    for (Task task = 0; task < count; ++task) {
      const Set bit = Set{1} << task;
      if ((done & bit) != 0 || (before[task] & ~done) != 0) continue;
      best[done | bit] = std::min(best[done | bit], std::max(best[done], held_after(tasks, done, task)));
    }
  }
  return best.back();
}

}  // namespace lowtide
