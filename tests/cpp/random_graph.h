// random_graph.h: small graphs with everything that makes planning hard, and random valid orders of them.
#pragma once

#include <random>
#include <vector>

#include "lowtide/graph.h"

namespace lowtide {

// 3 to 14 ops over buffers of 1 to 200 bytes: chains of in-place writes, several views of a version, resident buffers
// with initial content that are updated, resident results, kept buffers, reuses, workspaces, random ops, collectives,
// ops that must not or cannot fully run again, and explicit edges.
struct RandomGraphOptions {
  bool regions = false;  // ops in regions, then some of a backward pass
  bool axes = false;     // ops that can run in parts, of buffers that are cut alike more often than not
};
Graph random_graph(std::mt19937_64& random, RandomGraphOptions options = {});

// A uniformly chosen next op at every step, among those whose dependencies have run.
std::vector<OpId> random_order(const Graph& graph, std::mt19937_64& random);

}  // namespace lowtide
