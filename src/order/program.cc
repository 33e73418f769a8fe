#include "order/algorithms.h"

namespace lowtide {

Order first_to_last(std::size_t ops) {
  Order order;
  order.reserve(ops);
  for (std::size_t op = 0; op < ops; ++op) order.emplace_back(op);
  return order;
}

}  // namespace lowtide
