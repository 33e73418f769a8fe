// order.h: when each op runs.
//
// An order is a permutation of the ops that respects every dependency of the graph. An algorithm is a pure function
// from a graph to an order, known by its name: one line in src/order/registry.cc adds one, and plan(), the Python
// package and the tests find it there. A caller may bring algorithms of its own: see algorithms.h.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/limit.h"
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
  std::function<Result<BoundedOrder>(const Graph& graph, Work& work)> run;
};

std::span<const OrderAlgorithm> order_algorithms();

// What plan() lets an order algorithm spend: about two seconds, where nothing is decided before.
constexpr std::uint64_t kOrderSteps = 2'000'000'000;

struct OrderBound {
  std::string_view name;
  std::string_view description;  // one sentence
};

// Lower bounds on the peak of any order, the cheapest first. The highest of them counts.
std::span<const OrderBound> order_bounds();

// The algorithm of this name: one of ours or, if none of them has it, one of `others`. E501 with all names, if there is
// none.
Result<OrderAlgorithm> find_order(std::string_view name, std::span<const OrderAlgorithm> others = {});

}  // namespace lowtide
