// traded.h: plans in which some ops run again, so that a memory budget is kept, or as little is needed as a latency
// budget allows.
#pragma once

#include <optional>

#include "lowtide/plan.h"
#include "search/trades.h"

namespace lowtide {

// A plan of the rewritten graph too, for whoever wants to know what is alive in it.
struct Traded {
  Plan plan;
  Infeasible peak;  // its step, who is alive there, and below which no plan goes, whatever runs again
};

// Of the trades that start from `order`, with updates as early as they can be, the fastest whose resident bytes and
// arena are within `memory`; without such, the smallest. Nothing of this depends on `memory` but the choice.
Result<Traded> fastest_within(const Graph& graph, std::span<const OpId> order, const PlanOptions& options,
                              Bytes memory);

// The smallest that takes no longer than `latency`.
Result<Traded> smallest_within(const Graph& graph, std::span<const OpId> order, const PlanOptions& options,
                               Nanos latency);

// All trades that this algorithm finds from there, and the step as it is, with the work of one plan. E501 if there is
// no such algorithm.
Result<Trades> all_trades(const Graph& graph, std::span<const OpId> order, std::string_view algorithm);

}  // namespace lowtide
