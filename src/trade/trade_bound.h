// trade_bound.h: how low no peak can be, in any order and whatever runs again, for what that costs.
//
// At the moment at which an op runs for the first time, what is needed afterwards is in memory or is made again: with a
// price on every byte, the least that any plan pays is one cheapest cut (moment.h). So
//
//   cost + price * bytes >= cut
//
// which is a straight line below which no plan lies, for each moment and price. The highest of many lines counts.
#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/limit.h"
#include "trade/reruns.h"

namespace lowtide {

class TradeBound {
 public:
  // Lines for several moments and prices, as many as the work allows. Costs are those of `reruns`, made from `graph`.
  TradeBound(const Graph& graph, const Reruns& reruns, Work& work);

  // No plan in which what runs again costs no more than `cost` has a lower peak.
  std::int64_t least_peak(std::int64_t cost) const;

 private:
  struct Line {
    double at_no_cost;  // bytes
    double slope;       // bytes that one unit of cost may save
    std::size_t moment;

    double at(double cost) const { return at_no_cost - slope * cost; }
  };

  std::int64_t operands_;  // the most that one op needs by itself
  std::vector<Line> lines_;
};

}  // namespace lowtide
