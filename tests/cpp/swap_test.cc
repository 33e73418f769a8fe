// Buffers that leave memory for a tier and come back. plan() has verified what these tests look at.
#include <algorithm>
#include <random>
#include <vector>

#include "base/words.h"
#include "full_size.h"
#include "gtest/gtest.h"
#include "lowtide/plan.h"
#include "lowtide/verify.h"
#include "makers.h"
#include "random_graph.h"
#include "swaps.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

constexpr Bytes kFast(16'000'000'000);

Swap swap_of(const Graph& graph, Bytes rate = kFast) {
  return {.name = "disk", .link = {rate, rate}, .may_leave = resident_buffers(graph), .least = Bytes(1)};
}

// Random graphs at every budget that swapping alone can keep, one byte below what the plan before it needed: nothing
// is refused as long as each step fits with all others away, and every plan is verified.
TEST(Swap, KeepsEveryBudgetThatItCan) {
  std::mt19937_64 random(7);
  const std::size_t graphs = trials(3000, 300);
  int plans = 0;
  std::size_t swapped = 0;
  for (std::size_t i = 0; i < graphs; ++i) {
    const Graph graph = random_graph(random);
    PlanOptions options{.recompute = i % 2 == 0 ? "none" : "auto", .swap = swap_of(graph), .alignment = Bytes(1)};
    options.swap->link.duplex = i % 3 == 0;
    options.swap->link.latency = Nanos(i % 5);
    const Plan whole = unwrap(plan(graph, {.alignment = Bytes(1)}));
    Bytes memory = whole.resident + whole.arena;
    for (int round = 0; round < 40; ++round) {
      memory = Bytes(memory.count() * 15 / 16);
      options.memory_budget = memory;
      const Result<Plan> made = plan(graph, options);
      if (!made.ok()) {
        EXPECT_EQ(made.error().code, ErrorCode::memory_infeasible) << made.error().message;
        break;
      }
      ++plans;
      swapped += made->transfers.empty() ? 0 : 1;
      EXPECT_LE(made->resident + made->arena, memory);
    }
  }
  EXPECT_GT(swapped, graphs);
  RecordProperty("plans", plans);
}

// A step whose weights, state and gradients alone are several times its budget.
TEST(Swap, TrainsWhatDoesNotFit) {
  const Graph graph = training_graph(full_size() ? 20000 : 2000);
  const Bytes eager = unwrap(eager_bytes(graph));
  for (const std::uint64_t tenths : {6, 3, 1}) {
    PlanOptions options{.recompute = "none", .swap = swap_of(graph)};
    options.memory_budget = Bytes(eager.count() * tenths / 10);
    const Plan made = unwrap(plan(graph, options));
    EXPECT_LE(made.resident + made.arena, Bytes(eager.count() * tenths / 10));
    EXPECT_EQ(made.transfers.empty(), tenths > 5);
  }
}

// A link that takes no time costs nothing: the step is as fast as it is without a budget.
TEST(Swap, IsHiddenWhereTheLinkIsFast) {
  const Graph graph = training_graph(400);
  const Plan whole = unwrap(plan(graph, {}));
  PlanOptions options{.swap = swap_of(graph, Bytes::max())};
  options.memory_budget = Bytes((whole.resident + whole.arena).count() / 2);
  const Plan made = unwrap(plan(graph, options));
  EXPECT_GT(made.transfers.size(), 0U);
  EXPECT_LE(made.time.count(), whole.time.count() + made.transfers.size());
}

// Never slower than recomputation alone at the same budget.
TEST(Swap, IsNeverSlowerThanRecomputation) {
  const Graph graph = training_graph(kSanitized ? 100 : 300);
  const Plan whole = unwrap(plan(graph, {}));
  for (const std::uint64_t percent : {95, 90, 85, 80}) {
    PlanOptions options{.memory_budget = Bytes(whole.resident.count() + whole.arena.count() * percent / 100)};
    const Result<Plan> alone = plan(graph, options);
    options.swap = swap_of(graph);
    const Result<Plan> both = plan(graph, options);
    if (!alone.ok()) continue;
    EXPECT_LE(unwrap(both).time, alone->time) << percent;
  }
}

TEST(Swap, RefusesALinkWithoutARate) {
  const Graph graph = training_graph(40);
  PlanOptions options{.memory_budget = Bytes(1), .swap = swap_of(graph, Bytes(0))};
  EXPECT_EQ(plan(graph, options).error().code, ErrorCode::invalid_setting);
}

}  // namespace
}  // namespace lowtide
