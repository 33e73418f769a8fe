// expect_runs.h: runs that are what they are said to be.
#pragma once

#include "lowtide/graph.h"
#include "trade/trades.h"

namespace lowtide {

// The graph rewritten for these runs has the stated peak and time, and its plan is right.
void expect_right(const Graph& graph, const Reruns& reruns, const Trade& trade);

}  // namespace lowtide
