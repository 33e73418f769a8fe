// The integer programs of MODeL that order, or order and pack together, against every order there is.
//
//   LOWTIDE_FULL=1   3,000 random graphs instead of 300 to order, and 500 instead of 50 to order and pack
#include "published/model/model_program.h"

#include <random>
#include <string>

#include "best_order.h"
#include "brute_force.h"
#include "full_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/lifetimes.h"
#include "lowtide/plan.h"
#include "lowtide/published.h"
#include "lowtide/verify.h"
#include "makers.h"
#include "plan/items.h"
#include "published/model/model_joint.h"
#include "random_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kPlenty = 1'000'000'000'000;

// The next graph of at most so many ops.
Graph small_graph(std::mt19937_64& random, std::size_t most_ops) {
  while (true) {
    Graph graph = random_graph(random).without_reuses();
    if (graph.num_ops() <= most_ops) return graph;
  }
}

TEST(Spans, Diamond) {
  const Tasks tasks = to_tasks(graph_of(std::vector<Maker>{{8}, {16, {0}}, {32, {0}}, {64, {1, 2}}}));
  const StepSpans multi = to_spans(tasks, StepWidth::multi);
  EXPECT_THAT(multi.run, ElementsAre(StepRange{0, 2}, StepRange{1, 3}, StepRange{1, 3}, StepRange{2, 4}));
  const StepSpans single = to_spans(tasks, StepWidth::single);
  EXPECT_THAT(single.run, ElementsAre(StepRange{0, 1}, StepRange{1, 3}, StepRange{1, 3}, StepRange{3, 4}));
  // Of 0, used by 1 and 2; of 1, used by 3; of 2, used by 3; of 3, used by none.
  EXPECT_THAT(single.useful, ElementsAre(StepRange{0, 3}, StepRange{1, 4}, StepRange{1, 4}, StepRange{3, 4}));
  EXPECT_THAT(single.needed, ElementsAre(StepRange{1, 2}, StepRange{3, 4}, StepRange{3, 4}, StepRange{4, 4}));
}

TEST(Spans, EveryOrderIsWithinThem) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random).without_reuses();
    const Tasks tasks = to_tasks(graph);
    const std::vector<OpId> order = random_order(graph, random);
    std::vector<std::size_t> step_of(order.size());
    for (std::size_t step = 0; step < order.size(); ++step) step_of[order[step].index()] = step;
    for (const StepWidth width : {StepWidth::single, StepWidth::multi}) {
      const StepSpans spans = to_spans(tasks, width);
      for (Task task = 0; task < tasks.count(); ++task) {
        ASSERT_TRUE(spans.run[task].contains(step_of[task])) << "seed " << seed << ", op " << task;
      }
      for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
        const std::size_t begin = step_of[tasks.users[buffer].front()];
        std::size_t end = tasks.kept[buffer] ? order.size() : begin;
        for (const Task user : tasks.users[buffer]) end = std::max(end, step_of[user] + 1);
        ASSERT_TRUE(spans.useful[buffer].begin <= begin && end <= spans.useful[buffer].end) << "seed " << seed;
        for (std::size_t step = spans.needed[buffer].begin; step < spans.needed[buffer].end; ++step) {
          ASSERT_TRUE(begin < step && step < end) << "seed " << seed << ", buffer " << buffer;
        }
      }
    }
  }
}

void expect_valid(const Tasks& tasks, const Order& order, const std::string& where) {
  std::vector<bool> has_run(tasks.count());
  for (const OpId op : order) {
    for (const OpId needed : tasks.needs.predecessors[op.index()]) ASSERT_TRUE(has_run[needed.index()]) << where;
    ASSERT_FALSE(has_run[op.index()]) << where;
    has_run[op.index()] = true;
  }
  ASSERT_EQ(order.size(), tasks.count()) << where;
}

TEST(ModelProgram, LeastPeakOfAllOrders) {
  const std::uint64_t rounds = full_size() ? 3'000 : 300;
  std::uint64_t better_than_program = 0;
  std::uint64_t above_heaviest = 0;
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = small_graph(random, 7);
    const Tasks tasks = to_tasks(graph);
    const std::int64_t best = best_peak(tasks);
    for (const StepWidth width : {StepWidth::single, StepWidth::multi}) {
      const std::string where = "seed " + std::to_string(seed) + (width == StepWidth::single ? ", single" : ", multi");
      Work work(kPlenty);
      const ProvenOrder made = unwrap(model_order(tasks, width, work));
      expect_valid(tasks, made.order, where);
      EXPECT_EQ(made.peak, best) << where;
      EXPECT_EQ(made.bound, best) << where;
      EXPECT_EQ(unwrap(lifetimes(graph, made.order)).peak, Bytes(static_cast<std::uint64_t>(made.peak))) << where;
    }
    Order program;
    for (std::size_t op = 0; op < graph.num_ops(); ++op) program.push_back(OpId(op));
    better_than_program += best < peak_of(tasks, program) ? 1 : 0;
    above_heaviest += Bytes(static_cast<std::uint64_t>(best)) > operand_bound(graph) ? 1 : 0;
  }
  EXPECT_GT(better_than_program, rounds / 20);
  EXPECT_GT(above_heaviest, rounds / 20);
}

// 0 and 1 are large, 2 and 3 make little of them: 0 2 1 3 holds 101 + 1 at most, 0 1 2 3 holds 201.
const std::vector<Maker> kTwoChains = {{100}, {100}, {1, {0}}, {1, {1}}, {1, {2, 3}}};

TEST(ModelProgram, ByNameInAPlan) {
  const Plan made = unwrap(plan(graph_of(kTwoChains), {.order = "model_program", .others = published()}));
  EXPECT_EQ(made.peak, Bytes(102));
  EXPECT_EQ(made.provenance.order, "model_program");
}

TEST(ModelProgram, WorkspacesOfOneStepAreAllThere) {
  // Each of 0 and 1 needs 50 while it runs: side by side that would be 102, one after the other 52.
  const Tasks tasks = to_tasks(graph_of(std::vector<Maker>{{1, {}, 50}, {1, {}, 50}, {1, {0, 1}}}));
  Work work(kPlenty);
  const ProvenOrder made = unwrap(model_order(tasks, StepWidth::multi, work));
  EXPECT_EQ(made.peak, 52);
  EXPECT_EQ(made.bound, 52);
}

TEST(ModelProgram, SizesOfManyUnitsAreRoundedDown) {
  std::vector<Maker> makers = kTwoChains;
  for (Maker& maker : makers) maker.size = maker.size * (std::uint64_t{1} << 40) + 1;
  const Tasks tasks = to_tasks(graph_of(makers));
  Work work(kPlenty);
  const ProvenOrder made = unwrap(model_order(tasks, StepWidth::single, work));
  EXPECT_EQ(made.peak, best_peak(tasks));
  EXPECT_LT(made.bound, made.peak);
  EXPECT_GT(static_cast<double>(made.bound), 0.9999 * static_cast<double>(made.peak));
}

TEST(ModelProgram, NothingToOrder) {
  Work work(kPlenty);
  const ProvenOrder made = unwrap(model_order(to_tasks(unwrap(GraphBuilder().build())), StepWidth::single, work));
  EXPECT_TRUE(made.order.empty());
  EXPECT_EQ(made.bound, 0);
}

TEST(ModelProgram, WhatIsTooLargeIsRefused) {
  const Graph graph = graph_of(std::vector<Maker>(200, Maker{8}));
  const Result<Plan> made = plan(graph, {.order = "model_program", .others = published()});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::work_limit);
  EXPECT_THAT(made.error().message, HasSubstr("model_program takes graphs of at most"));
  EXPECT_THAT(made.error().message, HasSubstr("this one, of 200 ops that hold 200 buffers, has "));
}

// A chain forwards; backwards, for each layer, the gradient of its weight, of its input, and an update.
std::vector<Maker> training_step(std::size_t layers) {
  std::mt19937_64 random(1);
  std::vector<Maker> makers;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    makers.push_back({64 * (10 + random() % 20)});
    if (layer > 0) makers.back().reads = {layer - 1};
  }
  std::size_t gradient = layers - 1;
  for (std::size_t layer = layers; layer-- > 0;) {
    const std::size_t of_weight = makers.size();
    makers.push_back({64 * (5 + random() % 20), {gradient, layer}});
    makers.push_back({64 * (10 + random() % 20), {gradient, layer}});
    makers.push_back({64, {of_weight}});
    gradient = of_weight + 1;
  }
  return makers;
}

TEST(ModelProgram, LeastPeakOfATrainingStep) {
  const Tasks tasks = to_tasks(graph_of(training_step(4)));
  Work work(kPlenty);
  const ProvenOrder made = unwrap(model_order(tasks, StepWidth::single, work));
  EXPECT_EQ(made.peak, best_peak(tasks));
  EXPECT_EQ(made.bound, made.peak);
}

TEST(ModelProgram, WithoutWorkThereIsTheOrderThatItStartsFrom) {
  const Tasks tasks = to_tasks(graph_of(training_step(12)));
  for (const StepWidth width : {StepWidth::single, StepWidth::multi}) {
    Work work(1);
    const ProvenOrder made = unwrap(model_order(tasks, width, work));
    EXPECT_LE(made.peak, peak_of(tasks, first_to_last(tasks.count())));
    EXPECT_LT(made.bound, made.peak) << "solved without work";
  }
}

std::vector<LayoutItem> items_in(const Graph& graph, std::span<const OpId> order) {
  return items_of(graph, order, unwrap(lifetimes(graph, order)));
}

// The smallest arena of all orders that begin with `order`.
Bytes best_arena(const Graph& graph, const Tasks& tasks, Order& order) {
  if (order.size() == tasks.count()) return *smallest_arena(items_in(graph, order));
  const auto has_run = [&](OpId op) { return std::ranges::find(order, op) != order.end(); };
  Bytes best = Bytes::max();
  for (OpId op(0); op.index() < tasks.count(); op = op.next()) {
    if (has_run(op) || !std::ranges::all_of(tasks.needs.predecessors[op.index()], has_run)) continue;
    order.push_back(op);
    best = std::min(best, best_arena(graph, tasks, order));
    order.pop_back();
  }
  return best;
}

TEST(ModelJoint, SmallestArenaOfAllOrders) {
  const std::size_t rounds = full_size() ? 500 : 50;
  std::size_t above_peak = 0;
  std::size_t better_than_program = 0;
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = small_graph(random, 5);
    const Tasks tasks = to_tasks(graph);
    Order order;
    const Bytes best = best_arena(graph, tasks, order);
    for (const StepWidth width : {StepWidth::single, StepWidth::multi}) {
      const std::string where = "seed " + std::to_string(seed) + (width == StepWidth::single ? ", single" : ", multi");
      Work work(kPlenty);
      const JointAnswer made = unwrap(model_joint(graph, width, work));
      expect_valid(tasks, made.order, where);
      EXPECT_EQ(made.layout.arena, best) << where;
      EXPECT_EQ(made.bound, best) << where;
      const Status verified = verify_layout(items_in(graph, made.order), made.layout);
      EXPECT_TRUE(verified.ok()) << where << ": " << verified.error().message;
    }
    above_peak += best > Bytes(static_cast<std::uint64_t>(best_peak(tasks))) ? 1 : 0;
    better_than_program += best < unwrap(plan(graph, {.layout = "exact"})).arena ? 1 : 0;
  }
  EXPECT_GT(above_peak, rounds / 20);
  EXPECT_GT(better_than_program, rounds / 20);
}

TEST(ModelJoint, WithLittleWorkThereIsWhatItStartsFrom) {
  const Graph graph = graph_of(training_step(3));
  for (const std::uint64_t steps : {std::uint64_t{1}, std::uint64_t{200'000'000}}) {
    Work little(steps);
    const JointAnswer some = unwrap(model_joint(graph, StepWidth::single, little));
    EXPECT_LT(some.bound, some.layout.arena) << "solved with little work";
    EXPECT_GE(some.bound, operand_bound(graph));
    EXPECT_TRUE(verify_layout(items_in(graph, some.order), some.layout).ok());
  }
}

TEST(ModelJoint, WhatIsTooLargeIsRefused) {
  const std::vector<Maker> many(100, Maker{8});
  const std::vector<Maker> large = {{std::uint64_t{1} << 40}, {1}};
  for (const std::vector<Maker>& makers : {many, large}) {
    Work work(kPlenty);
    const Result<JointAnswer> made = model_joint(graph_of(makers), StepWidth::single, work);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::work_limit);
    EXPECT_THAT(made.error().message, HasSubstr("model_joint takes graphs of at most 5000 variables"));
  }
}

TEST(ModelJoint, NothingToPlace) {
  Work work(kPlenty);
  const JointAnswer made = unwrap(model_joint(unwrap(GraphBuilder().build()), StepWidth::multi, work));
  EXPECT_TRUE(made.order.empty());
  EXPECT_EQ(made.layout.arena, Bytes(0));
  EXPECT_EQ(made.bound, Bytes(0));
}

}  // namespace
}  // namespace lowtide
