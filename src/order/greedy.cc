#include "order/greedy.h"

#include <set>
#include <tuple>

namespace lowtide {
namespace {

using Rank = std::tuple<std::int64_t, std::int64_t, Task>;  // the lowest first; the last is the place

Rank rank(const Progress& progress, Greed greed, Task task) {
  const std::int64_t change = progress.change(task);
  const std::int64_t more = progress.needed(task) - progress.held();
  const Task place = progress.place_of(task);
  switch (greed) {
    case Greed::change:
      return {change, more, place};
    case Greed::change_alone:
      return {change, 0, place};
    case Greed::needed:
      return {more, change, place};
    case Greed::climb_least:
      return {change <= 0 ? 0 : 1, change <= 0 ? 0 : change, place};
    case Greed::climb_in_turn:
      return {change <= 0 ? 0 : 1, 0, place};
    case Greed::latest:
      return {-std::int64_t{place}, 0, place};
  }
  return {};
}

}  // namespace

Order greedy_order(const Tasks& tasks, Greed greed, Direction direction) {
  Progress progress(tasks, direction);
  std::set<Rank> ranked;
  std::vector<Rank> rank_of(tasks.count());  // of those in `ranked`
  std::vector<std::uint8_t> in(tasks.count());
  const auto put = [&](Task task) {
    rank_of[task] = rank(progress, greed, task);
    ranked.insert(rank_of[task]);
    in[task] = 1;
  };
  for (const Task place : progress.ready()) put(progress.task_at(place));
  while (!ranked.empty()) {
    const Task task = progress.task_at(std::get<2>(*ranked.begin()));
    ranked.erase(ranked.begin());
    in[task] = 0;
    progress.run(task);
    for (const Task other : progress.affected()) {
      if (!in[other]) continue;
      ranked.erase(rank_of[other]);
      put(other);
    }
    for (const Task other : progress.made_ready()) put(other);
  }
  return progress.order();
}

}  // namespace lowtide
