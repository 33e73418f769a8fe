// small_steps.h: training steps so small that every plan with repeats can be tried.
#pragma once

#include <cstdint>
#include <optional>
#include <random>

#include "lowtide/graph.h"

namespace lowtide {

// 5 to 8 ops: a few that make something of what is there, some in place, then as many that take what was made in about
// the opposite order. Every op has a cost, some a workspace, some may make their result over an operand.
Graph small_step(std::mt19937_64& random);

// 8 or 9 ops: two forward passes, each with its backward pass right behind it. What the second backward pass makes last
// is added in place to what the first one did, as gradients are. The second forward pass may read something of the
// first.
Graph two_small_turns(std::mt19937_64& random);

// The least cost of repeats with which some plan holds no more than `peak` bytes; nothing if none does. Tries them all.
std::optional<std::int64_t> least_cost_within(const Graph& graph, std::int64_t peak);

}  // namespace lowtide
