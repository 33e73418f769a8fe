// small_steps.h: training steps so small that every plan with repeats can be tried.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>

#include "gtest/gtest.h"
#include "lowtide/graph.h"
#include "trade/trade_bound.h"

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

// How many trades were compared with all plans there are, and how many of them are the best.
struct Compared {
  int points = 0;
  int best = 0;
};

// Compares trades with every plan, at each peak up to `highest`: the bound is below all that any plan reaches, and no
// trade is better than the best plan.
template <typename Points>
void compare_with_every_plan(const Graph& graph, const TradeBound& bound, const Points& trades, std::int64_t highest,
                             Compared& compared) {
  for (std::int64_t peak = 10; peak <= highest; peak += 10) {
    const std::optional<std::int64_t> least = least_cost_within(graph, peak);
    if (least) {
      EXPECT_LE(bound.least_peak(*least), peak) << "cost " << *least;
    }
    const auto found = std::ranges::find_if(trades, [&](const auto& trade) { return trade.peak <= peak; });
    if (found == trades.end()) continue;
    ASSERT_TRUE(least) << "peak " << peak << ": a trade where no plan is";
    EXPECT_GE(found->cost, *least) << "peak " << peak;
    ++compared.points;
    compared.best += found->cost == *least ? 1 : 0;
  }
}

}  // namespace lowtide
