#include "order/progress.h"

#include <algorithm>

namespace lowtide {

Progress::Progress(const Tasks& tasks, Direction direction)
    : tasks_(tasks),
      direction_(direction),
      waiting_for_(tasks.count()),
      users_left_(tasks.size.size()),
      sum_left_(tasks.size.size()),
      open_(tasks.size.size()),
      opens_(tasks.count()),
      closes_(tasks.count()),
      ready_(tasks.count()) {
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    const std::span<const Task> users = tasks.users[buffer];
    const bool kept = tasks.kept[buffer];
    users_left_[buffer] = static_cast<std::uint32_t>(users.size());
    for (const Task user : users) sum_left_[buffer] += user;
    open_[buffer] = direction == Direction::backwards && kept ? 1 : 0;
    if (open_[buffer]) {
      held_ += tasks.size[buffer];
    } else {
      for (const Task user : users) opens_[user] += tasks.size[buffer];
    }
    const bool closes = direction == Direction::backwards || !kept;
    if (closes && users.size() == 1) closes_[users[0]] += tasks.size[buffer];
  }
  for (Task task = 0; task < tasks.count(); ++task) {
    waiting_for_[task] = static_cast<std::uint32_t>(before(task).size());
    if (waiting_for_[task] == 0) ready_.insert(place_of(task));
  }
}

std::span<const OpId> Progress::before(Task task) const {
  return direction_ == Direction::forwards ? tasks_.needs.predecessors[task] : tasks_.needs.successors[task];
}

std::span<const OpId> Progress::behind(Task task) const {
  return direction_ == Direction::forwards ? tasks_.needs.successors[task] : tasks_.needs.predecessors[task];
}

void Progress::run(Task task) {
  affected_.clear();
  made_ready_.clear();
  held_ += change(task);
  run_.push_back(task);
  ready_.erase(place_of(task));
  for (const Held buffer : tasks_.touched[task]) {
    const std::int64_t size = tasks_.size[buffer];
    --users_left_[buffer];
    sum_left_[buffer] -= task;
    if (!open_[buffer]) {
      open_[buffer] = 1;
      for (const Task user : tasks_.users[buffer]) {
        opens_[user] -= size;
        affected_.push_back(user);
      }
      opens_[task] += size;  // what it opened itself is remembered
      steps_ += 4 * tasks_.users[buffer].size();
    }
    const bool closes = direction_ == Direction::backwards || !tasks_.kept[buffer];
    if (closes && users_left_[buffer] == 1) {
      closes_[sum_left_[buffer]] += size;
      affected_.push_back(sum_left_[buffer]);
    }
  }
  for (const OpId next : behind(task)) {
    const auto other = static_cast<Task>(next.index());
    if (--waiting_for_[other] > 0) continue;
    ready_.insert(place_of(other));
    made_ready_.push_back(other);
  }
  steps_ += 100 + 10 * tasks_.touched[task].size() + 10 * behind(task).size();
}

void Progress::undo() {
  const Task task = run_.back();
  run_.pop_back();
  for (const OpId next : behind(task)) {
    const auto other = static_cast<Task>(next.index());
    if (waiting_for_[other]++ == 0) ready_.erase(place_of(other));
  }
  const std::span<const Held> touched = tasks_.touched[task];
  for (std::size_t i = touched.size(); i-- > 0;) {
    const Held buffer = touched[i];
    const std::int64_t size = tasks_.size[buffer];
    const bool closes = direction_ == Direction::backwards || !tasks_.kept[buffer];
    if (closes && users_left_[buffer] == 1) closes_[sum_left_[buffer]] -= size;
    ++users_left_[buffer];
    sum_left_[buffer] += task;
    const bool opened = users_left_[buffer] == tasks_.users[buffer].size() &&
                        !(direction_ == Direction::backwards && tasks_.kept[buffer]);
    if (opened) {
      open_[buffer] = 0;
      opens_[task] -= size;
      for (const Task user : tasks_.users[buffer]) opens_[user] += size;
      steps_ += 4 * tasks_.users[buffer].size();
    }
  }
  held_ -= change(task);
  ready_.insert(place_of(task));
  steps_ += 100 + 10 * touched.size();
}

Order Progress::order() const {
  Order order;
  for (const Task task : run_) order.push_back(OpId(task));
  if (direction_ == Direction::backwards) std::ranges::reverse(order);
  return order;
}

}  // namespace lowtide
