#include "published/roam/segment.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace lowtide {

Segment::Segment(const Tasks& tasks, std::span<const Task> members, std::span<const std::uint32_t> segment_of)
    : members_(members.begin(), members.end()) {
  const std::uint32_t own = segment_of[members.front()];
  std::unordered_map<Task, Task> local;  // in the problem, where 0 is the entry
  for (std::size_t i = 0; i < members.size(); ++i) local[members[i]] = static_cast<Task>(i + 1);

  std::vector<std::pair<std::size_t, OpId>> before;
  std::vector<std::pair<std::size_t, OpId>> behind;
  problem_.workspace.push_back(0);
  for (const Task member : members) {
    problem_.workspace.push_back(tasks.workspace[member]);
    const Task task = local[member];
    const auto needs = [&](Task need) {
      before.emplace_back(task, OpId(need));
      behind.emplace_back(need, OpId(task));
    };
    const std::size_t outside = before.size();
    for (const OpId need : tasks.needs.predecessors[member]) {
      if (segment_of[need.index()] == own) needs(local[static_cast<Task>(need.index())]);
    }
    if (before.size() == outside) needs(0);
  }
  problem_.needs.predecessors = Lists<OpId>::group(members.size() + 1, before);
  problem_.needs.successors = Lists<OpId>::group(members.size() + 1, behind);

  std::vector<std::pair<std::size_t, Held>> touched;
  std::unordered_map<Held, Held> known;
  for (const Task member : members) {
    for (const Held buffer : tasks.touched[member]) {
      const auto [place, fresh] = known.try_emplace(buffer, static_cast<Held>(problem_.size.size()));
      touched.emplace_back(local[member], place->second);
      if (!fresh) continue;
      const auto comes_from_before = [&](Task user) { return segment_of[user] < own; };
      const auto goes_on = [&](Task user) { return segment_of[user] > own; };
      const std::span<const Task> all = tasks.users[buffer];
      std::vector<Task> users;
      if (std::ranges::any_of(all, comes_from_before)) {
        users.push_back(0);
        touched.emplace_back(0, place->second);
      }
      for (const Task user : all) {
        if (segment_of[user] == own) users.push_back(local[user]);
      }
      problem_.users.add(users);
      problem_.size.push_back(tasks.size[buffer]);
      problem_.kept.push_back(tasks.kept[buffer] || std::ranges::any_of(all, goes_on));
    }
  }
  problem_.touched = Lists<Held>::group(members.size() + 1, touched);
  problem_.reuses = Lists<TaskReuse>::group(members.size() + 1, {});  // the paper gives every result bytes of its own
}

Order Segment::decode(const Order& order) const {
  Order tasks;
  for (const OpId op : order) {
    if (op.index() > 0) tasks.emplace_back(members_[op.index() - 1]);
  }
  return tasks;
}

}  // namespace lowtide
