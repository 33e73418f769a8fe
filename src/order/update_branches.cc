#include "order/update_branches.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/groups.h"
#include "order/progress.h"

namespace lowtide {
namespace {

bool is_trained(const Graph& graph, VersionId written) {
  const Buffer buffer = graph.buffer(graph.version(written).buffer);
  return !buffer.planned() && (buffer.role == Role::parameter || buffer.role == Role::optimizer_state);
}

// By task: nothing comes behind it whose result is wanted for itself.
std::vector<bool> leads_to_state_alone(const Graph& graph, const Tasks& tasks) {
  std::vector<bool> leads(tasks.count());
  for (std::size_t task = tasks.count(); task-- > 0;) {
    const bool is_result = std::ranges::any_of(graph.op(OpId(task)).writes, [&](VersionId written) {
      const Version version = graph.version(written);
      const Buffer buffer = graph.buffer(version.buffer);
      return buffer.kept && (buffer.planned() || version.index == 0) && !is_trained(graph, written);
    });
    leads[task] = !is_result &&
                  std::ranges::all_of(tasks.needs.successors[task], [&](OpId behind) { return leads[behind.index()]; });
  }
  return leads;
}

std::vector<bool> find_updates(const Graph& graph, const Tasks& tasks) {
  const std::vector<bool> leads = leads_to_state_alone(graph, tasks);
  std::vector<bool> in_update(tasks.count());
  for (Task task = 0; task < tasks.count(); ++task) {
    const Op op = graph.op(OpId(task));
    const auto is_new = [&](VersionId version) {
      const std::optional<OpId> writer = graph.version(version).writer;
      return writer && in_update[writer->index()];
    };
    const auto reads_new = [&](ValueId read) { return is_new(graph.value(read).version); };
    const auto updates = [&](VersionId written) {
      const Version version = graph.version(written);
      return is_trained(graph, written) ||
             (version.index > 0 && is_new(graph.buffer(version.buffer).versions[version.index - 1]));
    };
    in_update[task] =
        leads[task] && (std::ranges::any_of(op.writes, updates) || std::ranges::any_of(op.reads, reads_new));
  }
  // What the rest needs for another reason (it overwrites what an update reads, say) is no update either.
  for (std::size_t task = tasks.count(); task-- > 0;) {
    if (!std::ranges::all_of(tasks.needs.successors[task], [&](OpId behind) { return in_update[behind.index()]; })) {
      in_update[task] = false;
    }
  }
  return in_update;
}

std::int64_t gradient_of(const Graph& graph, const std::vector<bool>& in_update, std::span<const Task> branch) {
  std::set<BufferId> gradients;
  for (const Task task : branch) {
    for (const ValueId read : graph.op(OpId(task)).reads) {
      const Version version = graph.version(graph.value(read).version);
      if (version.writer && !in_update[version.writer->index()]) gradients.insert(version.buffer);
    }
  }
  std::int64_t bytes = 0;
  for (const BufferId gradient : gradients) bytes += static_cast<std::int64_t>(graph.buffer(gradient).size.count());
  return bytes;
}

std::vector<std::size_t> steps_of(const Tasks& tasks, std::span<const OpId> order) {
  std::vector<std::size_t> step(tasks.count());
  for (std::size_t i = 0; i < order.size(); ++i) step[order[i].index()] = i;
  return step;
}

// Of those that can run, always the one with the lowest rank.
template <typename RankOf>
Order ordered_by(const Tasks& tasks, const RankOf& rank_of) {
  Progress progress(tasks, Direction::forwards);
  std::set<std::pair<decltype(rank_of(Task())), Task>> ready;
  const auto add = [&](Task task) { ready.emplace(rank_of(task), task); };
  for (const Task task : progress.ready()) add(task);
  while (!ready.empty()) {
    const Task task = ready.begin()->second;
    ready.erase(ready.begin());
    progress.run(task);
    for (const Task other : progress.made_ready()) add(other);
  }
  return progress.order();
}

Order with_late_decay(const Tasks& tasks, const std::vector<bool>& in_update, std::span<const OpId> order) {
  const auto waits = [&](OpId op) { return in_update[op.index()] && tasks.touched[op.index()].empty(); };
  std::vector<bool> placed(tasks.count());
  std::vector<std::pair<OpId, bool>> behind;  // a task, and whether all that it needs is placed
  Order late;
  late.reserve(order.size());
  const auto place = [&](OpId op) {
    behind.emplace_back(op, false);
    while (!behind.empty()) {
      const auto [next, is_ready] = behind.back();
      behind.pop_back();
      if (placed[next.index()]) continue;
      if (is_ready) {
        placed[next.index()] = true;
        late.push_back(next);
        continue;
      }
      behind.emplace_back(next, true);
      for (const OpId needed : tasks.needs.predecessors[next.index()]) {
        if (!placed[needed.index()]) behind.emplace_back(needed, false);
      }
    }
  };
  for (const OpId op : order) {
    if (!waits(op)) place(op);
  }
  for (const OpId op : order) place(op);
  return late;
}

}  // namespace

UpdateBranches update_branches(const Graph& graph, const Tasks& tasks) {
  UpdateBranches found{find_updates(graph, tasks), {}, {}};
  const std::vector<bool>& in_update = found.in_update;
  Groups groups(tasks.count());
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    std::optional<Task> last;
    for (const Task user : tasks.users[buffer]) {
      if (!in_update[user]) continue;
      if (last) groups.join(*last, user);
      last = user;
    }
  }
  const auto has_planned = [&](Task task) { return !tasks.touched[task].empty(); };
  for (Task task = 0; task < tasks.count(); ++task) {
    if (!in_update[task] || !has_planned(task)) continue;
    for (const OpId behind : tasks.needs.successors[task]) {
      if (has_planned(static_cast<Task>(behind.index()))) groups.join(task, static_cast<Task>(behind.index()));
    }
  }
  for (Task task = static_cast<Task>(tasks.count()); task-- > 0;) {
    if (!in_update[task] || has_planned(task)) continue;
    const std::span<const OpId> behind = tasks.needs.successors[task];
    const auto group_of = [&](OpId op) { return groups.find(static_cast<Task>(op.index())); };
    const bool serves_one =
        !behind.empty() && std::ranges::all_of(behind, [&](OpId op) { return group_of(op) == group_of(behind[0]); });
    if (serves_one) groups.join(task, group_of(behind[0]));
  }
  std::vector<std::pair<std::size_t, Task>> members;
  std::vector<std::size_t> number(tasks.count());  // of a branch, by its first task
  std::size_t branches = 0;
  for (Task task = 0; task < tasks.count(); ++task) {
    if (!in_update[task]) continue;
    const Task first = groups.find(task);
    if (first == task) number[task] = branches++;
    members.emplace_back(number[first], task);
  }
  found.branches = Lists<Task>::group(branches, members);
  for (std::size_t branch = 0; branch < branches; ++branch) {
    found.gradient.push_back(gradient_of(graph, in_update, found.branches[branch]));
  }
  return found;
}

Order early_updates_order(const Graph& graph, const Tasks& tasks, std::span<const OpId> order) {
  const std::vector<bool> in_update = find_updates(graph, tasks);
  const std::vector<std::size_t> step = steps_of(tasks, order);
  const Order early = ordered_by(tasks, [&](Task task) { return std::pair(!in_update[task], step[task]); });
  return with_late_decay(tasks, in_update, early);
}

Order late_decay_order(const Graph& graph, const Tasks& tasks, std::span<const OpId> order) {
  return with_late_decay(tasks, find_updates(graph, tasks), order);
}

Order late_updates_order(const Graph& graph, const Tasks& tasks, std::span<const OpId> order) {
  const UpdateBranches found = update_branches(graph, tasks);
  const std::vector<std::size_t> step = steps_of(tasks, order);
  std::vector<std::size_t> begin(tasks.count());  // by task of an update: the first step of its branch
  for (std::size_t branch = 0; branch < found.branches.size(); ++branch) {
    std::size_t first = tasks.count();
    for (const Task task : found.branches[branch]) first = std::min(first, step[task]);
    for (const Task task : found.branches[branch]) begin[task] = first;
  }
  return ordered_by(tasks, [&](Task task) { return std::tuple(bool{found.in_update[task]}, begin[task], step[task]); });
}

}  // namespace lowtide
