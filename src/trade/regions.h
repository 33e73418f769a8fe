// regions.h: what the regions of a graph ask for (see Op in graph.h), written into the graph.
//
//   graph, * in a region      its steps
//   0  x                      0
//   1  a = f(x)  *            1
//   2  b = g(a)  *            2            a ends here
//   3  l = loss(b)            3
//   4  backward(l, b)         4
//   5  backward(l, a)         1  5
//
// (Case "Picture" of regions_test.cc.) In the rewritten graph the repeats are ops like any other. Whoever orders it,
// lays it out or lets more run again, for a budget, cannot leave them out.
#pragma once

#include <optional>

#include "lowtide/graph.h"
#include "lowtide/status.h"
#include "rewrite/recompute.h"

namespace lowtide {

// In program order; nothing if the regions ask for nothing. No op of it has a region.
Result<std::optional<Rewritten>> with_regions(const Graph& graph);

}  // namespace lowtide
