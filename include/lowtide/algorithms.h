// algorithms.h: a caller's own algorithms, beside those of the library.
//
// plan() finds ours by name, and then these. What they answer is checked: an order that breaks a dependency, a layout
// in which two items share a byte, or steps that read what was dropped are errors, never plans.
//
//   PlanOptions options{.order = "mine"};
//   options.others.orders.push_back({"mine", "Largest results first.", largest_first});
#pragma once

#include <vector>

#include "lowtide/layout.h"
#include "lowtide/order.h"
#include "lowtide/recompute.h"

namespace lowtide {

struct Algorithms {
  std::vector<OrderAlgorithm> orders;
  std::vector<LayoutAlgorithm> layouts;
  std::vector<RecomputeAlgorithm> recomputes;
};

}  // namespace lowtide
