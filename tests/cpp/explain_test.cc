// Who holds a peak: small steps with the arithmetic written down, and what holds for every graph and plan.
#include "lowtide/explain.h"

#include <random>
#include <string>
#include <vector>

#include "full_size.h"
#include "gtest/gtest.h"
#include "lowtide/summary.h"
#include "random_graph.h"
#include "splits.h"
#include "swaps.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kKiB = 1024;

// Two layers of 4 KiB each, a loss, and their backward pass from the last to the first:
//
//   step  0 tanh   1 tanh   2 sum   3 back 1   4 back 0   5 update
//   h0    4        4        4       4          4
//   h1             4        4       4
//   loss                    1       1                                  1 KiB: what back 1 begins with
//   g1                              4          4
//   g0                                         4          4
//
// With the weight and the batch, 1 KiB each: 15 KiB at step 3. Without h0, which tanh can make again from x in 1 ms,
// 12 KiB are left at step 4 (h0, g1 and g0 are there in any case), and 2 KiB are resident: 14 KiB.
Graph two_layers(Nanos cost) {
  GraphBuilder builder;
  const auto resident = [&](Role role, std::string_view name) {
    return unwrap(builder.add_buffer(
        {.size = Bytes(kKiB), .residence = Residence::resident, .role = role, .name = name, .initial = true}));
  };
  const auto made = [&](std::uint64_t kib) { return unwrap(builder.add_buffer({.size = Bytes(kib * kKiB)})); };
  const auto shown = [&](BufferId id, std::int64_t size) { return unwrap(builder.add_value(id, "float32", {{size}})); };
  const BufferId weight = resident(Role::parameter, "weight"), batch = resident(Role::input, "batch");
  const BufferId h0 = made(4), h1 = made(4), loss = made(1), g1 = made(4), g0 = made(4);
  const auto add = [&](std::string_view name, std::vector<ValueId> reads, BufferId write, std::string_view source,
                       std::string_view module, bool backward) {
    unwrap(builder.add_op({.name = name,
                           .reads = std::move(reads),
                           .writes = {write},
                           .cost = cost,
                           .flags = {.backward = backward},
                           .source = source,
                           .module = module}));
  };
  add("aten.tanh.default", {shown(batch, 256)}, h0, "net.py:7", "layers.0", false);
  add("aten.tanh.default", {shown(h0, 1024)}, h1, "net.py:7", "layers.1", false);
  add("aten.sum.default", {shown(h1, 1024)}, loss, "net.py:9", "", false);
  add("aten.tanh_backward.default", {shown(loss, 256), shown(h1, 1024)}, g1, "net.py:7", "layers.1", true);
  add("aten.tanh_backward.default", {shown(g1, 1024), shown(h0, 1024)}, g0, "net.py:7", "layers.0", true);
  add("aten.add_.Tensor", {shown(weight, 256), shown(g0, 1024)}, weight, "train.py:5", "weight", false);
  return unwrap(std::move(builder).build());
}

TEST(Explain, Graph) {
  EXPECT_EQ(
      summary(unwrap(explain(two_layers(Nanos(1'000'000))))),
      "peak      15.00 KiB = 2.00 KiB resident + 13.00 KiB of the step\n"
      "at        aten.tanh_backward (net.py:7, in layers.1), step 3 of 6\n"
      "order     program, each tensor until its last use: eager PyTorch, if no variable holds one for longer\n"
      "alive     6 tensors\n"
      "\n"
      "  8.00 KiB  53.3 %  saved for backward, in use at the peak\n"
      "             2 x 4.00 KiB, float32 [1024]\n"
      "             made by   aten.tanh (net.py:7, in layers.* (0 to 1))\n"
      "             alive     until aten.tanh_backward (net.py:7, in layers.0) at steps 3 to 4\n"
      "             recompute 1.00 KiB less with 1 of them, for 1.000 ms more (16.7 % of the operators' time)\n"
      "             swap      1.00 KiB less: 0.001 ms of transfers at 16.0 GB/s, unused for 2.000 ms or more\n"
      "\n"
      "  4.00 KiB  26.7 %  temporary of backward, in use at the peak\n"
      "             float32 [1024]\n"
      "             made by   aten.tanh_backward (net.py:7, in layers.1)\n"
      "             alive     until aten.tanh_backward (net.py:7, in layers.0) at step 4\n"
      "\n"
      "  1.00 KiB   6.7 %  input\n"
      "             batch, float32 [256]\n"
      "\n"
      "  1.00 KiB   6.7 %  parameter\n"
      "             weight, float32 [256]\n"
      "\n"
      "  1.00 KiB   6.7 %  saved for backward, in use at the peak\n"
      "             float32 [256]\n"
      "             made by   aten.sum (net.py:9)\n"
      "             alive     until aten.tanh_backward (net.py:7, in layers.1) at step 3\n"
      "\n"
      "next      each alone; gains do not add up\n"
      "  -5.00 KiB  at most: work in chunks, of the batch or of the tokens, at net.py:7: what that operator reads and\n"
      "             writes is 9.00 KiB by itself, in any order\n"
      "  -1.00 KiB  recompute what net.py:7 in layers.* (0 to 1) makes: memory_budget=... of lowtide.compile or\n"
      "             lowtide plan chooses what to recompute; lowtide.recompute(module) or torch.utils.checkpoint does\n"
      "             it by hand\n"
      "  -7.00 KiB  at most: halve the batch");
}

TEST(Explain, TimesAreNotKnown) {
  const std::string text = summary(unwrap(explain(two_layers(Nanos(0)))));
  EXPECT_NE(text.find("recompute 1.00 KiB less with 1 of them, in a time that is not known"), text.npos) << text;
}

// Sixteen layers, each made from the one before: to drop all of them would make all of them again at once. The last is
// used at the peak; of the other fifteen every third stays, and the others are made again two by two.
TEST(Explain, OfAChainSomeStay) {
  GraphBuilder builder;
  std::vector<BufferId> made;
  for (std::size_t i = 0; i < 32; ++i) {
    std::vector<ValueId> reads;
    if (i > 0) reads.push_back(unwrap(builder.add_value(made.back(), "float32", {})));
    if (i >= 16) reads.push_back(unwrap(builder.add_value(made[31 - i], "float32", {})));
    made.push_back(unwrap(builder.add_buffer({.size = Bytes(i < 16 ? 100 : 10)})));
    unwrap(builder.add_op({.name = i < 16 ? "tanh" : "tanh_backward",
                           .reads = reads,
                           .writes = {made.back()},
                           .flags = {.backward = i >= 16}}));
  }
  const Explanation told = unwrap(explain(unwrap(std::move(builder).build())));
  ASSERT_EQ(told.holders.front().count, 16);
  ASSERT_TRUE(told.holders.front().recompute);
  EXPECT_EQ(told.holders.front().recompute->count, 10);
  EXPECT_GE(told.holders.front().recompute->gain, Bytes(700));
}

TEST(Explain, NothingRuns) {
  EXPECT_EQ(summary(unwrap(explain(unwrap(GraphBuilder().build())))), "peak      0 B resident; no operator runs");
}

TEST(Explain, RefusesAPlanOfAnotherGraph) {
  const Plan other = unwrap(plan(two_layers(Nanos(1))));
  EXPECT_EQ(explain(two_layers(Nanos(2)), other).error().code, ErrorCode::other_graph);
}

// Bytes are neither lost nor counted twice, and no gain is more than what is held.
void expect_whole(const Explanation& told) {
  Bytes held;
  for (const Holder& holder : told.holders) {
    held += holder.size;
    EXPECT_LE(holder.recompute.value_or(RecomputeGain{}).gain, told.total - told.resident);
    EXPECT_LE(holder.swap.value_or(SwapGain{}).gain, holder.size);
  }
  EXPECT_EQ(held, told.total);
  EXPECT_EQ(told.holders.size(), told.groups);
  EXPECT_LE(told.without_operands, told.total);
}

TEST(Explain, EveryByteHasAHolder) {
  const ExplainOptions all{.holders = 1'000'000};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random, {.regions = seed % 2 == 1});
    expect_whole(unwrap(explain(graph, all)));
    for (const bool reuse : {true, false}) {
      const Plan made = unwrap(plan(graph, {.reuse = reuse}));
      const Explanation told = unwrap(explain(graph, made, all));
      expect_whole(told);
      EXPECT_EQ(told.total, made.resident + made.peak);
    }
  }
}

// Swapped at budgets from what the plan needs down to what no swap can keep, with ops that run again and without.
TEST(Explain, PlansThatSwap) {
  const std::uint64_t graphs = kSanitized ? 40 : 200;
  std::uint64_t swapped = 0;
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const Link link{Bytes(16'000'000'000), Bytes(16'000'000'000)};
    PlanOptions options{
        .reuse = seed % 3 != 0,
        .recompute = seed % 2 == 0 ? "none" : "auto",
        .swap = Swap{.name = "disk", .link = link, .may_leave = resident_buffers(graph), .least = Bytes(1)},
        .alignment = Bytes(1)};
    const Plan whole = unwrap(plan(graph, {.alignment = Bytes(1)}));
    for (const std::uint64_t tenths : {9, 7, 5}) {
      options.memory_budget = Bytes((whole.resident + whole.arena).count() * tenths / 10);
      const Result<Plan> made = plan(graph, options);
      if (!made.ok() || made->transfers.empty()) continue;
      const Explanation told = unwrap(explain(graph, *made, {.holders = 1'000'000}));
      expect_whole(told);
      EXPECT_EQ(told.total, made->resident + made->peak);
      EXPECT_EQ(told.resident, made->resident);
      const bool says_so = summary(told).find(" in memory, and ") != std::string::npos;
      EXPECT_EQ(says_so, told.away > Bytes(0));
      swapped += says_so ? 1 : 0;
    }
  }
  EXPECT_GT(swapped, graphs / 2);
}

TEST(Explain, PlansThatRunOpsAgain) {
  const Graph graph = training_graph(kSanitized ? 100 : 400);
  const Bytes eager = unwrap(explain(graph)).total;
  const Plan small = unwrap(plan(graph, {.memory_budget = Bytes(eager.count() / 10 * 7)}));
  ASSERT_GT(small.order.size(), graph.num_ops());
  const Explanation told = unwrap(explain(graph, small, {.holders = 1'000'000}));
  expect_whole(told);
  EXPECT_EQ(told.total, small.resident + small.peak);
  EXPECT_LT(told.total, eager);
}

// c = g(f(a)) by rows in two parts, of which b, that is between them, has a block of 64 bytes each time; a is resident,
// c is kept: 128 bytes each. A part of f takes 10 ns.
TEST(Explain, PlanInParts) {
  GraphBuilder builder;
  const BufferId a =
      unwrap(builder.add_buffer({.size = Bytes(128), .residence = Residence::resident, .name = "a", .initial = true}));
  const BufferId b = unwrap(builder.add_buffer({.size = Bytes(128), .name = "b"}));
  const BufferId c = unwrap(builder.add_buffer({.size = Bytes(128), .name = "c"}));
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, c)}) {
    const ValueId read = unwrap(builder.add_value(from, "float32", {{32}}));
    const OpId op = unwrap(builder.add_op({.name = "f", .reads = {read}, .writes = {to}, .cost = Nanos(18)}));
    unwrap(builder.add_axis(
        op, {.reads = {Bytes(128)}, .writes = {Bytes(128)}, .counts = {{.count = 2, .cost = Nanos(10)}}}));
  }
  unwrap(builder.keep(c));
  const Graph graph = unwrap(std::move(builder).build());

  Plan plan;
  for (std::uint32_t i = 0; i < 4; ++i) {
    plan.order.emplace_back(i % 2);
    plan.parts.push_back({0, {i / 2, 2}});
    const BlockId between(1 + i / 2);
    plan.reads.add(std::vector{i % 2 == 0 ? BlockId(0) : between});
    plan.writes.add(std::vector{i % 2 == 0 ? between : BlockId(3)});
    plan.workspaces.emplace_back(0);
  }
  plan.blocks = {{a, StepIndex(0), StepIndex(4), {}},
                 {b, StepIndex(0), StepIndex(2), Bytes(128), 0, {0, 2}, Bytes(128)},
                 {b, StepIndex(2), StepIndex(4), Bytes(128), 0, {1, 2}, Bytes(128)},
                 {c, StepIndex(1), StepIndex(4), Bytes(0)}};
  plan.arena = plan.peak = plan.bound = Bytes(192);
  plan.resident = Bytes(128);
  plan.time = Nanos(40);
  plan.provenance.recompute = "none";
  const Explanation told = unwrap(explain(graph, plan));
  EXPECT_EQ(told.steps, 4u);
  EXPECT_EQ(told.total, Bytes(320));
  EXPECT_EQ(told.resident, Bytes(128));
  EXPECT_EQ(told.time, Nanos(40));
  EXPECT_EQ(told.alive, 3u);
  EXPECT_EQ(told.operands, Bytes(192));
  EXPECT_TRUE(summary(plan).starts_with("plan      4 steps (4 of them parts of ops), order ")) << summary(plan);
  EXPECT_NE(summary(plan).find("recompute none (0 of the steps)"), std::string::npos) << summary(plan);
}

TEST(Explain, AnyPlanInParts) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random, {.axes = true});
    Draft draft = draft_with_parts(graph, random);
    if (!draft.tiers.empty()) continue;
    const Plan plan = finish(draft);
    const Explanation told = unwrap(explain(graph, plan));
    EXPECT_LE(told.total, plan.resident + plan.peak);
    EXPECT_EQ(told.time, plan.time);
    EXPECT_FALSE(summary(told).empty());
  }
}

}  // namespace
}  // namespace lowtide
