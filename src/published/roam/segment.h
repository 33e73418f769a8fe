// segment.h: a part of an order as a problem by itself.
//
// Its tasks run together, between those that have run before and those that come after. What is held when it begins is
// touched by an entry, a task before all others; what is used after it is kept. What is held all the time and touched
// by none of its tasks is left out.
//
//   before | entry  a  b  c | after      x, made before and used by a: touched by the entry and a
//          |                |            y, made by b and used after: kept
#pragma once

#include <vector>

#include "order/tasks.h"

namespace lowtide {

class Segment {
 public:
  // `members`, of which there are some, in program order; `segment_of` by task, ascending along every dependency.
  Segment(const Tasks& tasks, std::span<const Task> members, std::span<const std::uint32_t> segment_of);

  const Tasks& problem() const { return problem_; }

  // The tasks of the whole, in the order that is given for those of the problem.
  Order decode(const Order& order) const;

 private:
  std::vector<Task> members_;
  Tasks problem_;
};

}  // namespace lowtide
