// order.h: when each op runs.
//
// An order is a permutation of the ops that respects every dependency of the graph. An algorithm is a pure function
// from a graph to an order, known by its name: one line in src/order/registry.cc adds one, and plan(), the Python
// package and the tests find it there.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/status.h"
#include "lowtide/units.h"

namespace lowtide {

using Order = std::vector<OpId>;  // by step

struct BoundedOrder {
  Order order;
  Bytes bound = {};  // proven: no order has a smaller peak; 0 from algorithms that prove nothing
};

struct OrderAlgorithm {
  std::string_view name;
  std::string_view description;  // one sentence
  Result<BoundedOrder> (*run)(const Graph& graph);
};

std::span<const OrderAlgorithm> order_algorithms();

struct OrderBound {
  std::string_view name;
  std::string_view description;  // one sentence
};

// Those that prove how low no order's peak can be, the cheapest first. The highest of them counts.
std::span<const OrderBound> order_bounds();

// E501 with the names there are, if `name` is none of them.
Result<OrderAlgorithm> find_order(std::string_view name);

}  // namespace lowtide
