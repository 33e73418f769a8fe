// order_by.h: the order of a graph by the algorithm of this name, ours or published.
#pragma once

#include <string_view>

#include "lowtide/order.h"
#include "lowtide/published.h"
#include "unwrap.h"

namespace lowtide {

inline Order order_by(std::string_view name, const Graph& graph) {
  Work work(kOrderSteps);
  return unwrap(unwrap(find_order(name, published().orders)).run(graph, work)).order;
}

}  // namespace lowtide
