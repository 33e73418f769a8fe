// min_cut.h: the least that any order holds while a given task runs.
//
// What has run before it is a set that holds all its ancestors, none of its descendants, and with each task all that
// the task needs. The least held after any such set is one cheapest cut: source's side has run, sink's side has not.
//
//   ancestors  are the source            maker --size--> buffer --unlimited--> each user
//   t and its descendants are the sink   task --unlimited--> what it needs
//
// A buffer with its maker on one side and a user on the other costs its size; that is kept, or touched by t, has a user
// on the far side anyway. So a cut finds what must_be_alive() cannot see: x or f(x) is held, whichever is smaller.
//
//   task     0 make x, 100   1 y = f(x), 60   2 t, needs 0   3 z = g(y), needs 2      held while 2 runs: 60 at least
//
// (Case "either" of order_bounds_test.cc.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/limit.h"
#include "order/tasks.h"

namespace lowtide {

struct LeastHeld {
  std::int64_t bytes = 0;         // proven: no order holds less while the task runs
  bool exact = false;             // some order holds just that: false if the work was not enough to find it
  std::vector<bool> before = {};  // by task, where exact: what that order runs before it
};
LeastHeld min_cut_at(const Tasks& tasks, Task task, Work& work);

// The most of it over all tasks, with few cuts: a task that holds no more than is proven in any order that is known
// needs none. Known are `order`, and for each cut the order that runs what it says before the task, then the task, then
// the rest, each as in `order`. The better `order`, the fewer cuts. Work that ends early leaves what is proven by then.
std::int64_t min_cut_from(const Tasks& tasks, std::span<const OpId> order, Work& work);

}  // namespace lowtide
