// algorithms.h: every order algorithm, one function each; registry.cc gives them names.
#pragma once

#include <cstdint>

#include "lowtide/order.h"

namespace lowtide {

struct ProvenOrder {
  Order order;
  std::int64_t peak;   // of this order, in bytes
  std::int64_t bound;  // proven: no order has a smaller one
};

// So many ops in program order.
Order first_to_last(std::size_t ops);

// E403 for graphs that are too large, and if nothing was found with the work it allows itself.
Result<BoundedOrder> model_program_order(const Graph& graph);

}  // namespace lowtide
