// algorithms.h: what order algorithms answer; registry.cc gives them names.
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

}  // namespace lowtide
