// What the regions of a graph ask for is dropped and made again, as long as that helps to keep a budget.
#include "trade/regions.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/words.h"
#include "full_size.h"
#include "gtest/gtest.h"
#include "lowtide/plan.h"
#include "makers.h"
#include "order/algorithms.h"
#include "random_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

// Two regions, a loss, and a backward pass that takes what they made in the opposite order. Region 1 has the ops from
// `first` + 1 to `first` + 3, region 2 the two that follow; 3 leaves its region.
std::vector<Maker> step(std::size_t first = 0, std::uint32_t region = 1) {
  const auto at = [&](std::size_t i) { return first + i; };
  return {{100},
          {.size = 60, .reads = {at(0)}, .region = region},
          {.size = 50, .reads = {at(1)}, .region = region},
          {.size = 10, .reads = {at(2)}, .region = region},
          {.size = 60, .reads = {at(3)}, .region = region + 1},
          {.size = 10, .reads = {at(4)}, .region = region + 1},
          {.size = 10, .reads = {at(5)}},
          {.size = 10, .reads = {at(6), at(4)}, .flags = kBackward},
          {.size = 10, .reads = {at(7), at(3)}, .flags = kBackward},
          {.size = 10, .reads = {at(8), at(2)}, .flags = kBackward},
          {.size = 10, .reads = {at(9), at(1)}, .flags = kBackward},
          {.size = 10, .reads = {at(10), at(0)}, .flags = kBackward}};
}

std::string text(std::span<const OpId> order) {
  std::string all;
  for (const OpId op : order) all += words(all.empty() ? "" : " ", op);
  return all;
}

std::string steps_of(const std::vector<Maker>& makers) {
  const Graph graph = graph_of(makers);
  const std::optional<Rewritten> rewritten = unwrap(with_regions(graph));
  return text(rewritten ? rewritten->op_of : first_to_last(graph.num_ops()));
}

// That of regions.h.
TEST(Regions, Picture) {
  EXPECT_EQ(steps_of({{8},
                      {.size = 8, .reads = {0}, .region = 1},
                      {.size = 8, .reads = {1}, .region = 1},
                      {8, {2}},
                      {.size = 8, .reads = {3, 2}, .flags = kBackward},
                      {.size = 8, .reads = {3, 1}, .flags = kBackward}}),
            "0 1 2 3 4 1 5");
}

TEST(Regions, WhatStaysInsideIsMadeAgain) {
  EXPECT_EQ(steps_of(step()), "0 1 2 3 4 5 6 4 7 8 1 2 9 10 11");
}

TEST(Regions, WhatMustNotRunAgainStays) {
  std::vector<Maker> makers = step();
  makers[1].flags.must_not_recompute = true;
  EXPECT_EQ(steps_of(makers), "0 1 2 3 4 5 6 4 7 8 2 9 10 11");
  makers[1].flags = {.collective = true};
  EXPECT_EQ(steps_of(makers), "0 1 2 3 4 5 6 4 7 8 2 9 10 11");
}

TEST(Regions, WhatOthersUseStays) {
  std::vector<Maker> makers = step();
  makers[5].reads.push_back(2);  // of region 2
  EXPECT_EQ(steps_of(makers), "0 1 2 3 4 5 6 4 7 8 9 1 10 11");
}

// Of two steps in one graph only one can have the turn: regions do not look at it.
TEST(Regions, EachPassHasItsOwn) {
  std::vector<Maker> makers = step();
  for (Maker& maker : step(makers.size(), 3)) makers.push_back(maker);
  makers.back().reads.push_back(11);
  EXPECT_EQ(steps_of(makers), "0 1 2 3 4 5 6 4 7 8 1 2 9 10 11 12 13 14 15 16 17 18 16 19 20 13 14 21 22 23");
}

// A forward pass in which each op reads one or two of the last few, and a backward pass over it.
std::vector<Maker> training_makers(std::mt19937_64& random) {
  const std::size_t forward = 6 + random() % 20;
  std::vector<Maker> makers = {{64}};
  for (std::size_t i = 1; i < forward; ++i) {
    makers.push_back({.size = 64 * (1 + random() % 10), .reads = {i - 1}, .cost = 1 + random() % 9});
    if (i > 3 && random() % 4 == 0) makers.back().reads.push_back(i - 3);
  }
  for (std::size_t i = forward; i > 1; --i) {
    makers.push_back(
        {.size = 64 * (1 + random() % 3), .reads = {makers.size() - 1, i - 2}, .flags = kBackward, .cost = 1});
  }
  return makers;
}

// Layers of three ops, each a region whose last one's result goes on; then a loss, and three ops backward for each.
Graph layers(std::size_t count) {
  std::vector<Maker> makers = {{64}};
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::uint64_t size : {640, 640, 64}) {
      makers.push_back({.size = size, .reads = {makers.size() - 1}, .region = static_cast<std::uint32_t>(i + 1)});
    }
  }
  makers.push_back({64, {makers.size() - 1}});
  for (std::size_t forward = 3 * count; forward > 0; --forward) {
    makers.push_back({.size = 64, .reads = {makers.size() - 1, forward - 1}, .flags = kBackward});
  }
  return graph_of(makers);
}

// Down to where only a plan that leaves them out is small enough.
TEST(Regions, HoldForAnyBudgetThatTheyCanKeep) {
  const Graph graph = layers(8);
  const Rewritten asked = *unwrap(with_regions(graph));
  const Plan free = unwrap(plan(graph));
  const Plan once = unwrap(plan(graph, {.recompute = "none"}));
  EXPECT_EQ(once.order.size(), graph.num_ops());
  EXPECT_EQ(free.order.size(), graph.num_ops() + 16);
  EXPECT_EQ(free.provenance.recompute, "regions");
  EXPECT_LT(free.arena.count(), once.arena.count() / 2);
  int kept = 0;
  for (std::uint64_t budget = free.arena.count(); budget >= 1280; budget -= kSanitized ? 192 : 64) {
    const Result<Plan> made = plan(graph, {.memory_budget = Bytes(budget)});
    if (!made.ok()) continue;
    EXPECT_LE(made->arena.count(), budget);
    if (!plan(asked.graph, {.memory_budget = Bytes(budget)}).ok()) continue;
    ++kept;
    for (std::size_t op = 1; op <= 24; ++op) {
      const bool inside = op % 3 != 0;
      EXPECT_GE(std::ranges::count(made->order, OpId(op)), inside ? 2 : 1) << op << ", budget " << budget;
    }
  }
  EXPECT_GE(kept, 3);
}

// Plans of any graph with regions are right, within budgets too: plan() asks verify().
TEST(Regions, OfRandomGraphs) {
  std::mt19937_64 random(3);
  const int graphs = full_size() ? 20000 : kSanitized ? 100 : 600;
  int asked = 0;
  int traded = 0;
  for (int i = 0; i < graphs; ++i) {
    const Graph graph = random_graph(random, {.regions = true});
    if (!unwrap(with_regions(graph))) continue;
    ++asked;
    const Plan free = unwrap(plan(graph));
    EXPECT_GT(free.order.size(), graph.num_ops());
    if (i % 8 != 0) continue;
    const Result<Plan> made = plan(graph, {.memory_budget = free.resident + Bytes(free.arena.count() * 9 / 10)});
    if (made.ok()) {
      traded += made->order.size() > free.order.size() ? 1 : 0;
    } else {
      EXPECT_EQ(made.error().code, ErrorCode::memory_infeasible) << made.error().message;
    }
  }
  EXPECT_GT(asked, graphs / 20);
  RecordProperty("asked", asked);
  RecordProperty("traded", traded);
  std::printf("%d of %d graphs ask for something, %d more ran again within a budget\n", asked, graphs, traded);
}

constexpr double kEffort = 0.1;  // of usual searches: these are many

// The smallest plan that is found, whatever it takes.
Bytes smallest(const Graph& graph) {
  return unwrap(plan(graph, {.latency_budget = Nanos::max(), .effort = kEffort})).arena;
}

TEST(Regions, MarksNeverRaiseTheSmallestPlan) {
  std::mt19937_64 random(17);
  const int graphs = full_size() ? 2000 : kSanitized ? 6 : 200;
  int asked = 0;
  for (int i = 0; i < graphs; ++i) {
    std::vector<Maker> makers = training_makers(random);
    const Graph unmarked = graph_of(makers);
    for (Maker& maker : makers) {
      if (!maker.flags.backward) maker.region = static_cast<std::uint32_t>(random() % 4);
    }
    const Graph marked = graph_of(makers);
    asked += unwrap(with_regions(marked)) ? 1 : 0;
    const Bytes least = smallest(unmarked);
    EXPECT_LE(smallest(marked), least) << "graph " << i;
    const Result<Plan> within = plan(marked, {.memory_budget = least, .effort = kEffort});
    ASSERT_TRUE(within.ok()) << "graph " << i << ": " << within.error().message;
    EXPECT_LE(within->arena, least) << "graph " << i;
  }
  EXPECT_GT(asked, graphs / 2);
  std::printf("%d of %d graphs ask for something\n", asked, graphs);
}

// Layers of 1 MiB. A mark on one of them must not keep the others from running again.
TEST(Regions, AMarkLeavesTheRestFree) {
  constexpr std::uint64_t kMiB = 1 << 20;
  constexpr std::size_t kOps = 24;
  const auto chain = [&](std::size_t marked) {
    std::vector<Maker> makers = {{kMiB}};
    for (std::size_t i = 1; i <= kOps; ++i) {
      makers.push_back({.size = kMiB, .reads = {i - 1}, .region = (i - 1) / 2 == marked ? 1u : 0u, .cost = 1});
    }
    for (std::size_t i = kOps; i > 0; --i) {
      makers.push_back({.size = kMiB, .reads = {makers.size() - 1, i - 1}, .flags = kBackward, .cost = 1});
    }
    return graph_of(makers);
  };
  const Bytes unmarked = smallest(chain(99));
  const Graph one_marked = chain(5);
  const Rewritten asked = *unwrap(with_regions(one_marked));
  EXPECT_LE(smallest(asked.graph), unmarked + Bytes(kMiB)) << "the edges of the rewrite forbid what the graph allows";
  EXPECT_LE(smallest(one_marked), unmarked);
}

}  // namespace
}  // namespace lowtide
