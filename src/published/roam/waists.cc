#include "published/roam/waists.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "graph/reachability.h"

namespace lowtide {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kSeveral = kNone - 1;

// By task: it belongs to an update, or serves one at most. Without updates there is no such task.
std::vector<bool> find_what_comes_along(const Tasks& tasks, const UpdateBranches& updates) {
  std::vector<std::uint32_t> serves(tasks.count(), kNone);  // a branch
  for (std::uint32_t branch = 0; branch < updates.branches.size(); ++branch) {
    for (const Task task : updates.branches[branch]) serves[task] = branch;
  }
  std::vector<bool> comes_along(tasks.count());
  if (updates.branches.size() == 0) return comes_along;
  for (Task task = static_cast<Task>(tasks.count()); task-- > 0;) {
    for (const OpId behind : tasks.needs.successors[task]) {
      const std::uint32_t other = serves[behind.index()];
      if (updates.in_update[task] || other == kNone || other == serves[task]) continue;
      serves[task] = serves[task] == kNone ? other : kSeveral;
    }
    comes_along[task] = serves[task] != kSeveral;
  }
  return comes_along;
}

// The forward and the backward pass alone, with what feeds them (see the header) right before the first that needs it.
class Passes {
 public:
  Passes(const Graph& graph, const Tasks& tasks, const std::vector<bool>& comes_along)
      : graph_(graph), tasks_(tasks), comes_along_(comes_along) {
    feeds_.assign(tasks.count(), false);
    first_need_.resize(tasks.count());
    std::iota(first_need_.begin(), first_need_.end(), Task{0});
    number();
    connect();
    if (order_.empty()) return;
    find_feeders();
    find_first_needs();
    number();
    connect();
  }

  std::span<const Task> tasks() const { return order_; }
  const Dependencies& needs() const { return needs_; }  // by place in tasks()

 private:
  void find_feeders() {
    const std::vector<std::uint32_t> before = count_relatives(needs_, Side::ancestors);
    const std::vector<std::uint32_t> after = count_relatives(needs_, Side::descendants);
    const auto lead = [&](Task task) { return std::pair(reads_input(task), after[place_[task]]); };
    const auto depth = [&](Task task) { return std::min(before[place_[task]], after[place_[task]]); };
    const Task start = *std::ranges::max_element(order_, {}, lead);
    const Task center = *std::ranges::max_element(order_, {}, depth);
    const bool trains = std::ranges::find(comes_along_, true) != comes_along_.end();
    const std::vector<bool> behind_start = descendants_of(start);
    const std::vector<bool> behind_center = descendants_of(center);
    const std::vector<bool> before_center = ancestors_of(center);
    for (Task task = 0; task < tasks_.count(); ++task) {
      feeds_[task] = !behind_start[task] || (trains && !behind_center[task] && !before_center[task]);
    }
  }

  bool reads_input(Task task) const {
    return std::ranges::any_of(graph_.op(OpId(task)).reads, [&](ValueId read) {
      return graph_.buffer(graph_.version(graph_.value(read).version).buffer).role == Role::input;
    });
  }

  std::vector<bool> descendants_of(Task first) const {  // and itself
    std::vector<bool> found(tasks_.count());
    found[first] = true;
    for (Task task = first + 1; task < tasks_.count(); ++task) {
      found[task] =
          std::ranges::any_of(tasks_.needs.predecessors[task], [&](OpId need) { return found[need.index()]; });
    }
    return found;
  }
  std::vector<bool> ancestors_of(Task last) const {  // and itself
    std::vector<bool> found(tasks_.count());
    found[last] = true;
    for (Task task = last; task-- > 0;) {
      found[task] = std::ranges::any_of(tasks_.needs.successors[task], [&](OpId next) { return found[next.index()]; });
    }
    return found;
  }

  void find_first_needs() {
    for (Task task = static_cast<Task>(tasks_.count()); task-- > 0;) {
      first_need_[task] = task;
      if (!feeds_[task]) continue;
      Task first = kNone;
      for (const OpId behind : tasks_.needs.successors[task]) {
        if (!comes_along_[behind.index()]) first = std::min(first, first_need_[behind.index()]);
      }
      if (first != kNone) first_need_[task] = first;
    }
  }

  void number() {
    order_.clear();
    for (Task task = 0; task < tasks_.count(); ++task) {
      if (!comes_along_[task]) order_.push_back(task);
    }
    std::ranges::sort(order_, {}, [&](Task task) { return std::tuple(first_need_[task], !feeds_[task], task); });
    place_.resize(tasks_.count());
    for (std::size_t place = 0; place < order_.size(); ++place) place_[order_[place]] = place;
  }

  void connect() {
    std::vector<std::pair<std::size_t, OpId>> before;
    std::vector<std::pair<std::size_t, OpId>> behind;
    for (std::size_t place = 0; place < order_.size(); ++place) {
      const Task task = order_[place];
      Order needs;
      for (const OpId need : tasks_.needs.predecessors[task]) needs.emplace_back(place_[need.index()]);
      if (feeds_[task]) {
        for (const OpId need : tasks_.needs.predecessors[first_need_[task]]) {
          if (!feeds_[need.index()]) needs.emplace_back(place_[need.index()]);
        }
      }
      std::ranges::sort(needs);
      needs.erase(std::ranges::unique(needs).begin(), needs.end());
      for (const OpId need : needs) {
        before.emplace_back(place, need);
        behind.emplace_back(need.index(), OpId(place));
      }
    }
    needs_.predecessors = Lists<OpId>::group(order_.size(), before);
    needs_.successors = Lists<OpId>::group(order_.size(), behind);
  }

  const Graph& graph_;
  const Tasks& tasks_;
  const std::vector<bool>& comes_along_;
  std::vector<bool> feeds_;
  std::vector<Task> first_need_;  // by task: itself, or that which needs a feeder first
  std::vector<Task> order_;
  std::vector<std::size_t> place_;  // by task
  Dependencies needs_;
};

}  // namespace

Waists no_waists(const Tasks& tasks) {
  Waists waists;
  waists.segment.resize(tasks.count());
  waists.comes_along.resize(tasks.count());
  waists.earliest.resize(tasks.count());
  waists.latest.resize(tasks.count());
  waists.steps = 1;
  return waists;
}

Waists find_waists(const Graph& graph, const Tasks& tasks, const UpdateBranches& updates) {
  Waists waists = no_waists(tasks);
  waists.comes_along = find_what_comes_along(tasks, updates);
  const Passes passes(graph, tasks, waists.comes_along);
  const std::vector<std::uint32_t> before = count_relatives(passes.needs(), Side::ancestors);
  const std::vector<std::uint32_t> after = count_relatives(passes.needs(), Side::descendants);
  waists.steps = static_cast<std::uint32_t>(passes.tasks().size());
  std::vector<std::uint32_t> opens(tasks.count());  // by task: the first segment in which another can come behind it
  for (std::size_t place = 0; place < waists.steps; ++place) {
    const Task task = passes.tasks()[place];
    waists.earliest[task] = before[place];
    waists.latest[task] = waists.steps - 1 - after[place];
    waists.segment[task] = opens[task] = static_cast<std::uint32_t>(waists.tasks.size());
    if (before[place] + after[place] + 1 < waists.steps) continue;
    waists.tasks.push_back(task);
    ++opens[task];
  }
  for (Task task = 0; task < tasks.count(); ++task) {
    if (!waists.comes_along[task]) continue;
    for (const OpId need : tasks.needs.predecessors[task]) {
      opens[task] = std::max(opens[task], opens[need.index()]);
      waists.earliest[task] = std::max(waists.earliest[task], waists.earliest[need.index()] + 1);
    }
    waists.segment[task] = opens[task];
    const bool last = opens[task] == waists.tasks.size();
    waists.latest[task] = last ? waists.steps - 1 : waists.earliest[waists.tasks[opens[task]]];
  }
  return waists;
}

}  // namespace lowtide
