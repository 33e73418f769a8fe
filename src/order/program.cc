#include "order/algorithms.h"

namespace lowtide {

Result<Order> program_order(const Graph& graph) {
  Order order;
  order.reserve(graph.num_ops());
  for (OpId op(0); op.index() < graph.num_ops(); op = op.next()) order.push_back(op);
  return order;
}

}  // namespace lowtide
