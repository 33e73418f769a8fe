// gathered.h: an order in which the uses of what may leave lie close together.
//
// Orders are made for planned buffers. To those it is all one when an update reads the optimizer's state, so that state
// would be loaded more often than it need be:
//
//   before   v.mul_  | forward and backward pass | m.lerp_  | 60 others | v.addcmul_  d = sqrt(v)  p.addcdiv_(m, d)
//   after            | forward and backward pass | m.lerp_  v.mul_  v.addcmul_  d = sqrt(v)  p.addcdiv_(m, d) | 60
//   others
//
// Two moves do that, and neither raises the peak. An op that touches no planned buffer runs right before the first that
// waits for it. And the few ops that the next use of a buffer waits for follow its last use at once, where all that
// they make dies among them, and fits there.
#pragma once

#include "lowtide/graph.h"
#include "lowtide/order.h"
#include "lowtide/plan.h"

namespace lowtide {

// `order` runs each op once, and has that peak still.
Order gathered(const Graph& graph, Order order, const Swap& swap);

}  // namespace lowtide
