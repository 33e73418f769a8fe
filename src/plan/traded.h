// traded.h: plans in which some ops run again, so that a memory budget is kept, or as little is needed as a latency
// budget allows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lowtide/order.h"
#include "lowtide/plan.h"
#include "plan/limits.h"

namespace lowtide {

// A plan on its way from pass to pass.
struct Draft {
  Plan plan;
  Infeasible peak;  // its step, who is alive there, and below which no plan goes, whatever runs again
};

// What can be had for how much: every op once, and some again.
struct TradedOrder {
  std::int64_t cost = 0;  // of what runs again
  std::int64_t peak = 0;  // without resident bytes
  Steps steps;
  std::string from = {};  // the order that it starts from, by name
};

// That of the options. E501 with all names, if there is no such algorithm.
Result<RecomputeAlgorithm> find_recompute(const PlanOptions& options);

// Of the trades that start from `order` or from that of the program, with updates as early as they can be, the fastest
// whose resident bytes and arena are within `memory`; without such, the smallest. Nothing of this depends on `memory`
// but the choice.
Result<Draft> fastest_within(const Graph& graph, std::span<const OpId> order, const PlanOptions& options,
                             const Limits& limits, Bytes memory);

// The fastest way to stay within `memory` in which some ops run again and some buffers leave memory, as the swap of the
// options allows: of each trade, the same within `memory` by swapping. Where no buffer needs to leave for that, or none
// was found, it is that of fastest_within(), or `once` where nothing may run again.
Result<Draft> fastest_with_swaps(const Graph& graph, Draft once, const PlanOptions& options, const Limits& limits,
                                 Bytes memory);

// The smallest that takes no longer than `latency`.
Result<Draft> smallest_within(const Graph& graph, std::span<const OpId> order, const PlanOptions& options,
                              const Limits& limits, Nanos latency);

// All trades that the algorithm of the options finds from there, and the step as it is, with the work of one plan. E501
// if there is no such algorithm.
Result<std::vector<TradedOrder>> all_trades(const Graph& graph, std::span<const OpId> order,
                                            const PlanOptions& options);

}  // namespace lowtide
