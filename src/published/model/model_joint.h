// model_joint.h: order and offsets together, with the smallest arena, by one integer program: MODeL as published.
//
// Beside when tasks run and buffers are held (model_lifetimes.h), the equations of the paper, for two buffers or
// workspaces i and j and a step s; below is 1 where i is to lie below j:
//
//   6   below(i, j) + below(j, i) <= 1, and >= live(i, s) + live(j, s) - 1         one of them, if they live together
//   7   offset(i) + size(i) <= offset(j) + (1 - below(i, j)) slack
//   8   offset(i) + size(i) <= arena
//
// None of this for two that never live together: no step is in both of their useful lives, or all users of one must run
// before the other is made. Those with a user in common always do: one of the two is set, whatever the step. The slack
// is the arena that program order is known to fit into.
//
// Nothing in it says that an arena holds what lives at a step: that only follows once all switches are set. It takes
// graphs of a few ops.
#pragma once

#include "lowtide/layout.h"
#include "lowtide/limit.h"
#include "lowtide/order.h"
#include "published/model/spans.h"

namespace lowtide {

struct JointAnswer {
  Order order;
  Layout layout;  // of items_of() this order
  Bytes bound;    // proven: no layout of any order has a smaller arena
};

// E403 for graphs that take too many variables or an arena of too many units, and if `work` does not suffice to find
// anything.
Result<JointAnswer> model_joint(const Graph& graph, StepWidth width, Work& work);

}  // namespace lowtide
