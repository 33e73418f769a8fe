// block_graph.h: a plan that runs ops in parts, as a graph in which nothing does.
#pragma once

#include "lowtide/graph.h"
#include "lowtide/plan.h"

namespace lowtide {

// Each step is an op, in this order, and each block that a step uses a buffer of its size. A right plan, without tiers.
// Where a result lies in the bytes of an operand, the op may reuse them.
Result<Graph> graph_of_blocks(const Graph& graph, const Plan& plan);

}  // namespace lowtide
