#include "published/inductor/inductor.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "order/progress.h"

namespace lowtide {
namespace {

// What is ready, by what each needs and leaves.
class Ready {
 public:
  explicit Ready(const Progress& progress) : progress_(progress) {}

  bool empty() const { return by_needed_.empty(); }
  void put(Task task) {
    const Bytes bytes{progress_.needed(task) - progress_.held(), progress_.change(task)};
    bytes_of_.resize(std::max<std::size_t>(bytes_of_.size(), task + 1));
    bytes_of_[task] = bytes;
    by_needed_.emplace(bytes.needed, bytes.left, task);
    by_left_.emplace(bytes.left, task);
  }
  void take(Task task) {
    const Bytes bytes = bytes_of_[task];
    by_needed_.erase({bytes.needed, bytes.left, task});
    by_left_.erase({bytes.left, task});
  }
  void update(Task task) {
    if (task >= bytes_of_.size() || !by_left_.contains({bytes_of_[task].left, task})) return;
    take(task);
    put(task);
  }

  Task choose(std::int64_t room) const {
    const auto& [needed, left, least] = *by_needed_.begin();
    if (needed > room) return least;
    return std::ranges::find_if(by_left_, [&](const auto& entry) { return bytes_of_[entry.second].needed <= room; })
        ->second;
  }

 private:
  struct Bytes {
    std::int64_t needed;  // more than is held now
    std::int64_t left;    // likewise, afterwards
  };

  const Progress& progress_;
  std::vector<Bytes> bytes_of_;  // by task
  std::set<std::tuple<std::int64_t, std::int64_t, Task>> by_needed_;
  std::set<std::pair<std::int64_t, Task>> by_left_;
};

}  // namespace

Order dfs_order(const Tasks& tasks) {
  const std::vector<std::int64_t> bytes = touched_bytes(tasks);
  const auto lighter = [&](OpId a, OpId b) { return std::pair(bytes[a.index()], a) < std::pair(bytes[b.index()], b); };
  Order order;
  std::vector<bool> met(tasks.count());
  struct Visit {
    OpId task;
    Order needs;  // that are still to be visited, the next one last
  };
  std::vector<Visit> visits;  // a stack of our own: chains may be as long as the graph
  const auto visit = [&](OpId task) {
    if (met[task.index()]) return;
    met[task.index()] = true;
    const std::span<const OpId> needs = tasks.needs.predecessors[task.index()];
    visits.push_back({task, {needs.begin(), needs.end()}});
    std::ranges::sort(visits.back().needs, [&](OpId a, OpId b) { return lighter(b, a); });
  };
  Order starts(tasks.count());
  std::generate(starts.begin(), starts.end(), [next = std::size_t{0}]() mutable { return OpId(next++); });
  std::ranges::sort(starts, lighter);
  for (const OpId start : starts) {
    visit(start);
    while (!visits.empty()) {
      if (visits.back().needs.empty()) {
        order.push_back(visits.back().task);
        visits.pop_back();
        continue;
      }
      const OpId need = visits.back().needs.back();
      visits.back().needs.pop_back();
      visit(need);
    }
  }
  return order;
}

Order bfs_order(const Tasks& tasks) {
  Progress progress(tasks, Direction::forwards);
  std::vector<std::size_t> step_of(tasks.count());
  std::set<std::pair<std::vector<std::size_t>, Task>> ready;  // by the steps of their needs, ascending
  const auto put = [&](Task task) {
    std::vector<std::size_t> steps;
    for (const OpId need : tasks.needs.predecessors[task]) steps.push_back(step_of[need.index()]);
    std::ranges::sort(steps);
    ready.emplace(std::move(steps), task);
  };
  for (const Task place : progress.ready()) put(progress.task_at(place));
  while (!ready.empty()) {
    const Task task = ready.begin()->second;
    ready.erase(ready.begin());
    step_of[task] = progress.num_run();
    progress.run(task);
    for (const Task other : progress.made_ready()) put(other);
  }
  return progress.order();
}

Order lpmf_order(const Tasks& tasks) {
  Progress progress(tasks, Direction::forwards);
  std::int64_t peak = 0;  // so far; what is kept will be held in any case
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) peak += tasks.kept[buffer] ? tasks.size[buffer] : 0;
  Ready ready(progress);
  for (const Task place : progress.ready()) ready.put(progress.task_at(place));
  while (!ready.empty()) {
    const Task task = ready.choose(peak - progress.held());
    peak = std::max(peak, progress.needed(task));
    ready.take(task);
    progress.run(task);
    for (const Task other : progress.affected()) ready.update(other);
    for (const Task other : progress.made_ready()) ready.put(other);
  }
  return progress.order();
}

}  // namespace lowtide
