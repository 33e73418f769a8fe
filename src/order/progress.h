// progress.h: how far an order has come: what has run, what can run next, and what is held.
//
// An order is built from its first task forwards, or from its last backwards: see tasks.h. What a task would open (the
// buffers that it is the first to touch) and close (those that it is the last to touch) is kept up to date for every
// task that has not run, so that choosing the next one takes no more than looking. Over a whole order that is linear in
// the graph.
#pragma once

#include <vector>

#include "base/ordered_bits.h"
#include "lowtide/order.h"
#include "order/tasks.h"

namespace lowtide {

enum class Direction { forwards, backwards };

class Progress {
 public:
  Progress(const Tasks& tasks, Direction direction);

  bool done() const { return run_.size() == tasks_.count(); }
  std::size_t num_run() const { return run_.size(); }
  std::int64_t held() const { return held_; }

  // What is held while `task` runs, if it runs next, and by how much it changes what is held afterwards.
  std::int64_t needed(Task task) const {
    const auto ends = [&](Held buffer) {
      return direction_ == Direction::forwards ? users_left_[buffer] == 1 && !tasks_.kept[buffer] : !open_[buffer];
    };
    return held_ + opens_[task] + tasks_.workspace[task] - reused(tasks_, task, ends);
  }
  std::int64_t change(Task task) const { return opens_[task] - closes_[task]; }

  // What can run next, the first in program order first; backwards the last.
  const OrderedBits& ready() const { return ready_; }
  Task task_at(Task place) const {
    return direction_ == Direction::forwards ? place : static_cast<Task>(tasks_.count()) - 1 - place;
  }
  Task place_of(Task task) const { return task_at(task); }  // in ready(): the two turn round each other

  // The tasks whose needs the last run() has changed, and those that it has made ready. Some may be listed twice.
  const std::vector<Task>& affected() const { return affected_; }
  const std::vector<Task>& made_ready() const { return made_ready_; }

  void run(Task task);
  void undo();  // the last run
  Task last_run() const { return run_.back(); }

  Order order() const;                            // of what has run, from the first on
  std::uint64_t steps() const { return steps_; }  // of work so far, about a nanosecond each

 private:
  std::span<const OpId> before(Task task) const;
  std::span<const OpId> behind(Task task) const;

  const Tasks& tasks_;
  const Direction direction_;
  std::vector<std::uint32_t> waiting_for_;  // by task: how many of those before it have not run
  std::vector<std::uint32_t> users_left_;   // by buffer
  std::vector<Task> sum_left_;              // by buffer: the sum of their indices, so that the last of them is known
  std::vector<std::uint8_t> open_;          // by buffer: somebody has touched it
  std::vector<std::int64_t> opens_;
  std::vector<std::int64_t> closes_;
  OrderedBits ready_;  // by place_of
  std::vector<Task> run_;
  std::vector<Task> affected_;
  std::vector<Task> made_ready_;
  std::int64_t held_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace lowtide
