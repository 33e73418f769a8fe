#include "lowtide/plan.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <random>

#include "full_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/layout.h"
#include "lowtide/order.h"
#include "lowtide/published.h"
#include "lowtide/verify.h"
#include "makers.h"
#include "quick_layouts.h"
#include "random_graph.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The picture of plan.h, with a resident weight of 1000 bytes that nobody touches.
Graph in_place() {
  GraphBuilder builder;
  const BufferId a = unwrap(builder.add_buffer({.size = Bytes(128), .name = "a"}));
  const BufferId b = unwrap(builder.add_buffer({.size = Bytes(64), .name = "b"}));
  unwrap(builder.add_buffer({.size = Bytes(1000), .residence = Residence::resident, .name = "w", .initial = true}));
  unwrap(builder.add_op({.name = "make", .writes = {a}, .cost = Nanos(5)}));
  unwrap(builder.add_op(
      {.name = "relu_", .reads = {unwrap(builder.add_value(a, "u8", {}))}, .writes = {a}, .cost = Nanos(6)}));
  unwrap(builder.add_op({.name = "f",
                         .reads = {unwrap(builder.add_value(a, "u8", {}))},
                         .writes = {b},
                         .cost = Nanos(7),
                         .source = "net.py:3"}));
  return unwrap(std::move(builder).build());
}

TEST(Plan, InPlace) {
  const Plan made = unwrap(plan(in_place()));
  EXPECT_THAT(made.order, ElementsAre(OpId(0), OpId(1), OpId(2)));
  ASSERT_EQ(made.blocks.size(), 3u);
  EXPECT_EQ(made.blocks[0].offset, Bytes(0));
  EXPECT_EQ(made.blocks[0].begin, StepIndex(0));
  EXPECT_EQ(made.blocks[0].end, StepIndex(3));
  EXPECT_EQ(made.blocks[1].offset, Bytes(128));
  EXPECT_EQ(made.blocks[1].begin, StepIndex(2));
  EXPECT_EQ(made.blocks[2].offset, std::nullopt);
  EXPECT_THAT(made.reads[0], IsEmpty());
  EXPECT_THAT(made.reads[1], ElementsAre(BlockId(0)));
  EXPECT_THAT(made.writes[1], ElementsAre(BlockId(0)));
  EXPECT_THAT(made.writes[2], ElementsAre(BlockId(1)));
  EXPECT_EQ(made.arena, Bytes(192));
  EXPECT_EQ(made.peak, Bytes(192));
  EXPECT_EQ(made.bound, Bytes(192));
  EXPECT_EQ(made.resident, Bytes(1000));
  EXPECT_EQ(made.time, Nanos(18));
  EXPECT_EQ(made.fragmentation(), 0.0);
  EXPECT_EQ(made.provenance.order, "best");
  EXPECT_EQ(made.provenance.layout, "first_fit") << "reaches the bound, so that no other is tried";
}

// a -> b -> c, each made over the one before; a has another reader, which must run first for that.
TEST(Plan, ResultsAreMadeInTheBytesOfOperands) {
  GraphBuilder builder;
  std::vector<BufferId> ids;
  for (const char* name : {"a", "b", "c"})
    ids.push_back(unwrap(builder.add_buffer({.size = Bytes(256), .name = name})));
  const BufferId small = unwrap(builder.add_buffer({.size = Bytes(64), .name = "small"}));
  unwrap(builder.add_op({.name = "make", .writes = {ids[0]}}));
  const ValueId a = unwrap(builder.add_value(ids[0], "u8", {}));
  unwrap(builder.add_op({.name = "f", .reads = {a}, .writes = {ids[1]}}));
  unwrap(builder.add_op({.name = "sum", .reads = {a}, .writes = {small}}));
  unwrap(builder.add_op({.name = "g", .reads = {unwrap(builder.add_value(ids[1], "u8", {}))}, .writes = {ids[2]}}));
  unwrap(builder.add_op({.name = "use", .reads = {unwrap(builder.add_value(ids[2], "u8", {}))}}));
  unwrap(builder.add_reuse(OpId(1), ids[0], ids[1]));
  unwrap(builder.add_reuse(OpId(3), ids[1], ids[2]));
  unwrap(builder.keep(small));
  const Graph graph = unwrap(std::move(builder).build());

  const Plan made = unwrap(plan(graph));
  EXPECT_THAT(made.order, ElementsAre(OpId(0), OpId(2), OpId(1), OpId(3), OpId(4)));
  EXPECT_EQ(made.arena, Bytes(256 + 64));
  EXPECT_EQ(made.bound, made.arena);
  EXPECT_EQ(made.blocks[0].offset, made.blocks[1].offset);
  EXPECT_EQ(made.blocks[1].offset, made.blocks[2].offset);

  // In program order a is needed after f has run, but b can still be made into c.
  const Plan program = unwrap(plan(graph, {.order = "program"}));
  EXPECT_EQ(program.arena, Bytes(2 * 256 + 64));
  EXPECT_NE(program.blocks[0].offset, program.blocks[1].offset);
  EXPECT_EQ(program.blocks[1].offset, program.blocks[2].offset);

  const Plan apart = unwrap(plan(graph, {.reuse = false}));
  EXPECT_EQ(apart.arena, Bytes(2 * 256 + 64));
  EXPECT_TRUE(verify(graph, apart).ok());
}

TEST(Plan, FragmentationIsWhatThePeakLeavesUnused) {
  Plan made;
  EXPECT_EQ(made.fragmentation(), 0.0);
  made.arena = Bytes(200);
  made.peak = Bytes(150);
  EXPECT_EQ(made.fragmentation(), 0.25);
}

TEST(Plan, MemoryBudgetIsHard) {
  const Graph graph = in_place();
  EXPECT_TRUE(plan(graph, {.memory_budget = Bytes(1192)}).ok());  // 1000 resident + 192
  EXPECT_TRUE(plan(graph, {.memory_budget = Share{1.0}}).ok());
  for (const Budget& budget : {Budget(Bytes(1191)), Budget(Share{0.99})}) {
    const Result<Plan> refused = plan(graph, {.memory_budget = budget});
    ASSERT_FALSE(refused.ok());
    const Error& error = refused.error();
    EXPECT_EQ(error.code, ErrorCode::memory_infeasible);
    EXPECT_EQ(error.infeasible.bound, Bytes(1192));
    EXPECT_EQ(error.infeasible.step, StepIndex(2));
    ASSERT_EQ(error.infeasible.culprits.size(), 2u);
    EXPECT_EQ(error.infeasible.culprits[0].name, "a");
    EXPECT_EQ(error.infeasible.culprits[1].size, Bytes(64));
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("(1192 bytes)"), HasSubstr("step 2, op 'f' (net.py:3), held by a 128 B, b 64 B")));
  }
}

TEST(Plan, LatencyBudgetIsHard) {
  EXPECT_TRUE(plan(in_place(), {.latency_budget = Nanos(18)}).ok());
  const Result<Plan> refused = plan(in_place(), {.latency_budget = Nanos(17)});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::latency_infeasible);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("17 ns"), HasSubstr("18 ns")));
}

TEST(Plan, OptionsThatMakeNoSense) {
  EXPECT_EQ(plan(in_place(), {.order = "fastest"}).error().code, ErrorCode::unknown_algorithm);
  EXPECT_EQ(plan(in_place(), {.layout = "fastest"}).error().code, ErrorCode::unknown_algorithm);
  EXPECT_EQ(plan(in_place(), {.memory_budget = Share{1.5}}).error().code, ErrorCode::invalid_share);
}

TEST(Plan, EmptyGraph) {
  const Plan made = unwrap(plan(unwrap(GraphBuilder().build())));
  EXPECT_EQ(made.arena, Bytes(0));
}

TEST(Plan, BuffersWithoutBytes) {
  GraphBuilder builder;
  const BufferId empty = unwrap(builder.add_buffer({.size = Bytes(0), .name = "empty"}));
  unwrap(builder.add_op({.name = "make", .writes = {empty}}));
  unwrap(builder.keep(empty));
  EXPECT_EQ(unwrap(plan(unwrap(std::move(builder).build()))).arena, Bytes(0));
}

// Ours and published, but for the integer program, which has a test of its own, model_program_test.cc.
std::vector<std::string_view> quick_orders() {
  std::vector<std::string_view> names;
  for (const OrderAlgorithm& order : order_algorithms()) names.push_back(order.name);
  for (const OrderAlgorithm& order : published().orders) {
    if (order.name != "model_program") names.push_back(order.name);
  }
  return names;
}

// Every quick order with every quick layout, on random graphs.
TEST(Plan, EveryAlgorithmPassesVerify) {
  for (std::uint64_t seed = 0; seed < trials(500, 250); ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    for (const std::string_view order : quick_orders()) {
      for (const std::string_view layout : quick_layouts()) {
        const Result<Plan> made =
            plan(graph, {.order = std::string(order), .layout = std::string(layout), .others = published()});
        ASSERT_TRUE(made.ok()) << "seed " << seed << ": " << made.error().message;
        EXPECT_TRUE(verify(graph, *made).ok());
        EXPECT_GE(made->arena, made->bound);
      }
    }
  }
}

TEST(Plan, OffsetsAreMultiplesOfTheAlignment) {
  for (const std::uint64_t alignment : {1, 8, 64, 96, 512, 4096}) {
    std::mt19937_64 random(alignment);
    for (int i = 0; i < 20; ++i) {
      const Graph graph = random_graph(random);
      const Plan made = unwrap(plan(graph, {.alignment = Bytes(alignment)}));
      EXPECT_EQ(made.alignment, Bytes(alignment));
      for (const Block& block : made.blocks) {
        if (graph.buffer(block.buffer).size > Bytes(0)) {
          EXPECT_EQ(block.offset.value_or(Bytes(0)).count() % alignment, 0u);
        }
      }
    }
  }
  const Graph graph = graph_of(std::vector<Maker>{{10}, {10, {0}}, {10, {0, 1}}});
  EXPECT_EQ(unwrap(plan(graph, {.alignment = Bytes(1)})).arena, Bytes(30));
  EXPECT_EQ(unwrap(plan(graph)).arena, Bytes(138));
  EXPECT_EQ(plan(graph, {.alignment = Bytes(0)}).error().code, ErrorCode::invalid_setting);
  Plan wrong = unwrap(plan(graph, {.alignment = Bytes(1)}));
  wrong.alignment = kAlignment;
  EXPECT_EQ(verify(graph, wrong).error().code, ErrorCode::misaligned);
  wrong.alignment = Bytes(0);
  EXPECT_EQ(verify(graph, wrong).error().code, ErrorCode::misaligned);
}

TEST(Plan, MoreEffortIsNeverWorse) {
  const Graph graph = training_graph(kSanitized ? 100 : 300);
  const Bytes budget(unwrap(plan(graph)).arena.count() * 7 / 10 + graph.resident_bytes().count());
  Nanos before = Nanos::max();
  for (const double effort : {0.01, 0.1, 1.0}) {
    const Result<Plan> made = plan(graph, {.memory_budget = budget, .effort = effort});
    if (!made.ok()) continue;
    EXPECT_LE(made->time.count(), before.count() + before.count() / 100) << effort;
    before = made->time;
  }
  EXPECT_LT(before, Nanos::max());
  for (const double effort : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(plan(graph, {.effort = effort}).error().code, ErrorCode::invalid_setting) << effort;
  }
}

TEST(Plan, ThreadsChangeNothing) {
  const Graph graph = training_graph(kSanitized ? 80 : 200);
  const Plan one = unwrap(plan(graph));
  const Plan two = unwrap(plan(graph, {.threads = 2}));
  EXPECT_EQ(one.order, two.order);
  EXPECT_EQ(one.arena, two.arena);
  for (std::size_t i = 0; i < one.blocks.size(); ++i) EXPECT_EQ(one.blocks[i].offset, two.blocks[i].offset);
}

// No time at all still gives a plan that is right.
TEST(Plan, ATimeLimitGivesWhatWasFound) {
  const Graph graph = training_graph(kSanitized ? 200 : 2000);
  const Plan made = unwrap(plan(graph, {.time_limit = std::chrono::milliseconds(0)}));
  EXPECT_TRUE(verify(graph, made).ok());
  EXPECT_GE(made.arena, unwrap(plan(graph)).bound);
}

}  // namespace
}  // namespace lowtide
