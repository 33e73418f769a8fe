// in_parts.h: plans in which some ops run in parts, where that keeps a budget that whole ops do not, or takes less time
// or memory.
#pragma once

#include <functional>

#include "fission/splits.h"
#include "lowtide/plan.h"
#include "plan/limits.h"
#include "plan/traded.h"

namespace lowtide {

// Orders, trades and lays out a graph as the budgets of the options ask.
using DraftGraph = std::function<Result<Draft>(const Graph& graph)>;

// The same for the graph in which some ops run in parts, as a plan of the one in which they may.
Result<Draft> drafted_in_parts(const Graph& graph, const Splitting& splitting, const DraftGraph& drafted);

// `whole` is what ops that run in whole can do. It is returned if nothing better is found.
Result<Draft> best_draft_in_parts(const Graph& graph, Draft whole, const DraftGraph& drafted,
                                  const PlanOptions& options, const Limits& limits);

}  // namespace lowtide
