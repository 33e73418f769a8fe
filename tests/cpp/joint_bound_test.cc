// No plan is below the bound on recomputation and swapping together: not one of all plans of tiny steps, not one of
// random right plans, and none that plan() makes.
#include "swap/joint_bound.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "draft.h"
#include "full_size.h"
#include "gtest/gtest.h"
#include "lowtide/plan.h"
#include "lowtide/verify.h"
#include "order_by.h"
#include "random_graph.h"
#include "sanitized.h"
#include "small_steps.h"
#include "swap/tenants.h"
#include "swap_machine.h"
#include "swaps.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

// Between 1 and 32 bytes a nanosecond: about what ops of tiny steps make.
Link random_link(std::mt19937_64& random) {
  const auto rate = [&] { return Bytes(1'000'000'000 * (std::uint64_t{1} << random() % 6)); };
  return {rate(), rate(), Nanos(random() % 3), random() % 2 == 0};
}

JointBound bound_of(const Graph& graph, const Swap& swap) {
  return JointBound(graph, to_reruns(graph, order_by("best", graph)), swap);
}

void expect_above(JointBound& bound, Bytes memory, Nanos time) {
  Work work = Work::unlimited();
  EXPECT_LE(bound.least_time(memory, work), time) << "bytes " << memory.count();
  EXPECT_LE(bound.least_memory(time), memory) << "time " << time.count();
}

TEST(JointBound, IsBelowEveryPlanOfSmallSteps) {
  std::mt19937_64 random(11);
  const int steps = full_size() ? 400 : kSanitized ? 6 : 20;
  int points = 0;
  int met = 0;
  double above = 0;
  for (int i = 0; i < steps; ++i) {
    const Graph graph = small_step(random);
    const Swap swap{.name = "disk", .link = random_link(random), .least = Bytes(1)};
    if (graph.num_ops() > 6) continue;
    SCOPED_TRACE(::testing::Message() << "step " << i);
    JointBound bound = bound_of(graph, swap);
    const auto highest = static_cast<std::int64_t>(unwrap(eager_bytes(graph)).count());
    for (std::int64_t peak = 10; peak <= highest; peak += 20) {
      const std::optional<std::int64_t> least = least_time_within(graph, swap.link, peak);
      if (!least) continue;
      const Bytes memory(static_cast<std::uint64_t>(peak));
      const Nanos time(static_cast<std::uint64_t>(*least));
      expect_above(bound, memory, time);
      Work work = Work::unlimited();
      const Nanos proven = bound.least_time(memory, work);
      ++points;
      met += proven.count() + 1 >= time.count() ? 1 : 0;
      above += static_cast<double>(time.count()) / static_cast<double>(proven.count()) - 1;
    }
    if (HasFailure()) return;
  }
  std::printf("%d of %d times are met by the bound; on average they are %.1f %% above\n", met, points,
              100 * above / points);
  EXPECT_LT(above / points, 0.25);
}

TEST(JointBound, IsBelowRandomRightPlans) {
  std::mt19937_64 random(12);
  const int graphs = full_size() ? 20'000 : kSanitized ? 100 : 1000;
  int plans = 0;
  for (int i = 0; i < graphs; ++i) {
    const Graph graph = random_graph(random);
    Draft draft = draft_plan(graph, random_order(graph, random), random);
    add_tiers(draft, random);
    for (std::size_t j = random() % 5; j > 0; --j) swap_out(graph, draft, random);
    for (std::size_t j = random() % 4; j > 0; --j) move_home(graph, draft, random);
    sort_transfers(draft, random);
    settle(graph, draft, random);
    const Plan made = finish(draft);
    ASSERT_TRUE(verify(graph, made).ok());
    if (made.tiers.size() != 1) continue;
    const Swap swap{
        .name = "disk", .link = made.tiers.front().link, .may_leave = resident_buffers(graph), .least = Bytes(1)};
    const std::vector<bool> may = movable(graph, swap.may_leave, swap.least);
    const bool allowed = std::ranges::all_of(
        made.blocks, [&](const Block& block) { return block.tier == 0 || may[block.buffer.index()]; });
    if (!allowed) continue;
    ++plans;
    SCOPED_TRACE(::testing::Message() << "graph " << i);
    JointBound bound = bound_of(graph, swap);
    expect_above(bound, made.resident + made.peak, made.time);
    if (HasFailure()) return;
  }
  EXPECT_GT(plans, graphs / 8);
}

TEST(JointBound, IsBelowWhatIsPlanned) {
  std::mt19937_64 random(13);
  const int graphs = full_size() ? 2000 : kSanitized ? 20 : 60;
  int swapped = 0;
  for (int i = 0; i < graphs; ++i) {
    const Graph graph = i % 10 == 0 ? training_graph(static_cast<std::size_t>(20 + i)) : random_graph(random);
    Swap swap{.name = "disk", .link = random_link(random), .least = Bytes(1)};
    if (i % 3 != 0) swap.may_leave = resident_buffers(graph);
    SCOPED_TRACE(::testing::Message() << "graph " << i);
    JointBound bound = bound_of(graph, swap);
    PlanOptions options{.swap = swap, .alignment = Bytes(1)};
    Bytes memory = unwrap(eager_bytes(graph));
    for (int round = 0; round < 8; ++round) {
      memory = Bytes(memory.count() * 7 / 8);
      options.memory_budget = memory;
      const Result<Plan> made = plan(graph, options);
      if (!made.ok()) break;
      swapped += made->transfers.empty() ? 0 : 1;
      expect_above(bound, made->resident + made->peak, made->time);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(swapped, graphs / 4);
}

}  // namespace
}  // namespace lowtide
