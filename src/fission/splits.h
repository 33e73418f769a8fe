// splits.h: which ops run in parts, so that no op needs more than so many bytes.
#pragma once

#include <optional>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/recompute.h"
#include "rewrite/parts.h"

namespace lowtide {

struct Splitting {
  Steps steps;                // of the graph: every op once, and again what is made again in parts
  std::vector<Split> splits;  // of the graph that runs these steps
};

// Each op that needs more than `most` bytes of operands and workspace runs in parts that do not, together with those
// that it shares large buffers with. None if that is not found for all of them, or if none needs so much. With `exact`,
// all parts have the bits of the whole ops.
std::optional<Splitting> splits_within(const Graph& graph, Bytes most, bool exact);

}  // namespace lowtide
