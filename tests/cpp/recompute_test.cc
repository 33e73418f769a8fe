#include "rewrite/recompute.h"

#include <algorithm>
#include <random>
#include <stop_token>
#include <string>

#include "base/words.h"
#include "expect_runs.h"
#include "full_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/lifetimes.h"
#include "lowtide/order.h"
#include "makers.h"
#include "order/algorithms.h"
#include "order_by.h"
#include "random_graph.h"
#include "small_steps.h"
#include "trade/condensed.h"
#include "trade/drops.h"
#include "trade/trade_bound.h"
#include "trade/trades.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;

// The picture of reruns.h.
Graph chain() {
  return graph_of(std::vector<Maker>{{100}, {60, {0}}, {10, {1}}, {10, {2}}, {10, {1, 3}}, {10, {0, 4}}});
}

// "0 1 0'": what runs again has a mark.
std::string text(const Runs& runs) {
  std::string all;
  for (const auto& [op, again] : runs) all += words(all.empty() ? "" : " ", op, again ? "'" : "");
  return all;
}

TEST(Reruns, Chain) {
  const Graph graph = chain();
  const Reruns reruns = to_reruns(graph, first_to_last(6));
  ASSERT_EQ(reruns.turn, 3u);
  Choice choice = keep_all(reruns);
  choice[1] = Fate::dropped;
  Dropping dropping(reruns);
  EXPECT_EQ(text(dropping.runs_of(choice)), "0 1 2 3 1' 4 5");
  choice[0] = Fate::dropped;
  EXPECT_EQ(text(dropping.runs_of(choice)), "0 1 2 3 0' 1' 4 5");
  EXPECT_EQ(choice_of(reruns, dropping.runs_of(choice)), choice);
  EXPECT_EQ(choice_of(reruns, each_once(reruns)), keep_all(reruns));
}

// Op 2 stands aside from all between 1 and 8. So the most bytes wait behind 4, which has one op to its side, and not
// behind 1, which has none: 100 + 60 + 1 + 50 + 10 against 100 + 60.
TEST(Reruns, AnOpToTheSideDoesNotMoveTheTurn) {
  const Graph graph = graph_of(std::vector<Maker>{
      {100}, {60, {0}}, {1, {1}}, {50, {1}}, {10, {3}}, {10, {3, 4}}, {10, {1, 5}}, {10, {0, 6}}, {1, {2, 7}}});
  EXPECT_EQ(to_reruns(graph, first_to_last(9)).turn, 5u);
}

// The picture of recompute.h.
TEST(Recompute, InPlace) {
  GraphBuilder builder;
  const BufferId x = unwrap(builder.add_buffer(
      {.size = Bytes(64), .residence = Residence::resident, .role = Role::input, .name = "x", .initial = true}));
  const BufferId h = unwrap(builder.add_buffer({.size = Bytes(64), .name = "h"}));
  const BufferId y = unwrap(builder.add_buffer({.size = Bytes(64), .name = "y"}));
  const BufferId z = unwrap(builder.add_buffer({.size = Bytes(64), .name = "z"}));
  const BufferId g = unwrap(builder.add_buffer({.size = Bytes(64), .name = "g"}));
  const auto shown = [&](BufferId buffer) { return unwrap(builder.add_value(buffer, "u8", {})); };
  unwrap(builder.add_op({.name = "linear", .reads = {shown(x)}, .writes = {h}}));
  unwrap(builder.add_op({.name = "relu_", .reads = {shown(h)}, .writes = {h}}));
  unwrap(builder.add_op({.name = "mul", .reads = {shown(h)}, .writes = {y}}));
  unwrap(builder.add_op({.name = "f", .reads = {shown(y)}, .writes = {z}}));
  unwrap(builder.add_op({.name = "g", .reads = {shown(z), shown(h)}, .writes = {g}}));
  const Graph graph = unwrap(std::move(builder).build());

  const std::vector<OpId> steps = {OpId(0), OpId(1), OpId(2), OpId(3), OpId(0), OpId(1), OpId(4)};
  const Rewritten rewritten = unwrap(run_again(graph, steps));
  EXPECT_EQ(rewritten.op_of, steps);
  EXPECT_EQ(rewritten.graph.num_ops(), 7u);
  EXPECT_EQ(rewritten.graph.num_buffers(), 6u);
  EXPECT_EQ(rewritten.buffer_of.back(), h);
  EXPECT_THAT(rewritten.reads[6], ElementsAre(z, BufferId(5)));
  const Lifetimes lives = unwrap(lifetimes(rewritten.graph, first_to_last(7)));
  EXPECT_EQ(lives.lives[h.index()], (Life{StepIndex(0), StepIndex(3)}));
  EXPECT_EQ(lives.lives[5], (Life{StepIndex(4), StepIndex(7)}));
}

// By a random choice of what is dropped: what the search expects is what the rewritten graph needs, and a right plan.
Trade random_trade(const Reruns& reruns, std::mt19937_64& random) {
  Choice choice = keep_all(reruns);
  for (const Item item : reruns.candidates) choice[item] = static_cast<Fate>(random() % 2);
  Dropping dropping(reruns);
  const Runs runs = needed_runs(reruns, dropping.runs_of(choice));
  const Outcome outcome = Evaluation(reruns).of(runs);
  return {outcome.cost, outcome.peak, runs};
}

void expect_as_evaluated(const Graph& graph, std::span<const OpId> order, std::mt19937_64& random) {
  const Reruns reruns = to_reruns(graph, order);
  expect_right(graph, reruns, random_trade(reruns, random));
  const Condensed condensed = condense(reruns);
  Trade trade = random_trade(condensed.reruns, random);
  trade.runs = condensed.spread(trade.runs);
  expect_right(graph, reruns, trade);
}

TEST(Recompute, NeedsWhatTheSearchExpects) {
  std::mt19937_64 random(1);
  for (int i = 0; i < (kSanitized ? 1'000 : 20'000); ++i) {
    const Graph graph = random_graph(random);
    expect_as_evaluated(graph, random_order(graph, random), random);
    if (HasFailure()) FAIL() << "graph " << i;
  }
  for (const std::size_t ops : {40u, 100u, 300u, 1000u}) {
    const Graph graph = training_graph(ops);
    for (std::size_t i = 0; i < trials(20, 20); ++i) expect_as_evaluated(graph, first_to_last(graph.num_ops()), random);
  }
}

// Two ops of the forward pass, two of the backward pass, and an update between these. The update holds 60 bytes beside
// a and b: more than what it takes and leaves, which is nothing.
TEST(Condensed, ARowOfOpsThatNoTradeConcernsIsOne) {
  GraphBuilder builder;
  const auto buffer = [&](std::uint64_t size, std::string name) {
    return unwrap(builder.add_buffer({.size = Bytes(size), .name = std::move(name)}));
  };
  const auto read = [&](BufferId id) { return unwrap(builder.add_value(id, "u8", {})); };
  const BufferId a = buffer(100, "a"), b = buffer(100, "b"), c = buffer(10, "c"), d = buffer(10, "d");
  const BufferId u = buffer(20, "u"), v = buffer(40, "v");
  unwrap(builder.add_op({.name = "a", .reads = {}, .writes = {a}, .cost = Nanos(5)}));
  unwrap(builder.add_op({.name = "b", .reads = {read(a)}, .writes = {b}, .cost = Nanos(5)}));
  unwrap(builder.add_op({.name = "c", .reads = {read(b)}, .writes = {c}, .cost = Nanos(5)}));
  unwrap(builder.add_op({.name = "u", .reads = {}, .writes = {u}, .cost = Nanos(1)}));
  unwrap(builder.add_op({.name = "v", .reads = {read(u)}, .writes = {v}, .cost = Nanos(1)}));
  unwrap(builder.add_op({.name = "d", .reads = {read(c), read(a)}, .writes = {d}, .cost = Nanos(5)}));
  const Graph graph = unwrap(std::move(builder).build());
  const Reruns reruns = to_reruns(graph, first_to_last(6));
  const Condensed condensed = condense(reruns);
  ASSERT_EQ(condensed.reruns.num_ops(), 5u);
  EXPECT_THAT(condensed.stands_for[3], ElementsAre(3u, 4u));
  EXPECT_EQ(condensed.reruns.cost[3], 2);
  EXPECT_EQ(condensed.reruns.workspace[3], 60);
  EXPECT_EQ(condensed.reruns.num_items(), 4u);
  EXPECT_EQ(condensed.spread({{3, false}, {0, true}, {4, false}}),
            (Runs{{3, false}, {4, false}, {0, true}, {5, false}}));
}

// Costs and peaks of the trades are real, and the bound is below all that any plan reaches.
TEST(Recompute, EveryPlanOfSmallSteps) {
  const int steps = full_size() ? 3000 : kSanitized ? 30 : 100;
  std::mt19937_64 random(7);
  Compared compared;
  for (int i = 0; i < steps; ++i) {
    const Graph graph = small_step(random);
    const Order order = order_by("best", graph);
    const Reruns reruns = to_reruns(graph, order);
    Work work = Work::unlimited();
    const TradeBound bound(graph, reruns, work);
    Work search(20'000'000);
    const Trades trades = auto_trades(bound, reruns, search);
    ASSERT_FALSE(trades.empty());
    SCOPED_TRACE(::testing::Message() << "step " << i);
    compare_with_every_plan(graph, bound, trades, reruns.peak, compared);
    if (HasFailure()) return;
  }
  EXPECT_GE(compared.best, compared.points * 9 / 10) << "best trades of " << compared.points;
  RecordProperty("best_trades", compared.best);
  std::printf("%d of %d trades are the best there are\n", compared.best, compared.points);
}

// Budgets from what a step needs down to what one op does: each is kept or refused, a smaller one never gives a faster
// plan, and a longer latency never a larger one.
void expect_lawful(const Graph& graph, std::size_t budgets) {
  const Plan free = unwrap(plan(graph));
  const std::uint64_t lowest = operand_bound(graph).count();
  std::uint64_t time = 0;
  bool refused = false;
  for (std::size_t i = 0; i <= budgets; ++i) {
    const std::uint64_t arena = free.arena.count() - (free.arena.count() - lowest) * i / budgets;
    const Bytes budget = graph.resident_bytes() + Bytes(arena);
    const Result<Plan> made = plan(graph, {.memory_budget = budget});
    if (!made.ok()) {
      EXPECT_EQ(made.error().code, ErrorCode::memory_infeasible) << made.error().message;
      EXPECT_LE(made.error().infeasible.bound, graph.resident_bytes() + free.arena);
      refused = true;
      continue;
    }
    EXPECT_FALSE(refused) << "a larger budget was refused";
    EXPECT_LE(made->resident + made->arena, budget);
    EXPECT_GE(made->time.count(), time) << "a smaller budget gives a faster plan";
    EXPECT_LE(made->bound, made->arena);
    time = made->time.count();
  }
  std::uint64_t peak = free.peak.count();
  for (std::size_t i = 0; i <= budgets; ++i) {
    const Nanos latency(free.time.count() + free.time.count() * i / (2 * budgets));
    const Plan made = unwrap(plan(graph, {.latency_budget = latency}));
    EXPECT_LE(made.time, latency);
    EXPECT_LE(made.peak.count(), peak) << "more time gives a larger plan";
    peak = made.peak.count();
  }
}

TEST(Recompute, AStepWithoutOpsIsRefusedIfItDoesNotFit) {
  GraphBuilder builder;
  unwrap(builder.add_buffer({.size = Bytes(512), .residence = Residence::resident, .initial = true}));
  const Graph graph = unwrap(std::move(builder).build());
  for (const std::string_view recompute : {"auto", "greedy", "chen", "rotor", "checkmate", "dtr"}) {
    PlanOptions options;
    options.recompute = recompute;
    options.others = published();
    options.memory_budget = Bytes(511);
    EXPECT_EQ(plan(graph, options).error().code, ErrorCode::memory_infeasible) << recompute;
    options.memory_budget = Bytes(512);
    EXPECT_TRUE(plan(graph, options).ok()) << recompute;
  }
}

TEST(Recompute, BudgetsAreKeptAndMonotone) {
  std::mt19937_64 random(11);
  const std::size_t graphs = full_size() ? 100 : kSanitized ? 2 : 4;
  const std::size_t budgets = full_size() ? 20 : kSanitized ? 3 : 6;
  for (std::size_t i = 0; i < graphs; ++i) {
    const bool large = i % 2 == 0;
    expect_lawful(large        ? training_graph(40 + 19 * (random() % 8))
                  : i % 4 == 1 ? small_step(random)
                               : two_small_turns(random),
                  budgets);
    if (HasFailure()) FAIL() << "graph " << i;
  }
}

TEST(Recompute, ToldAndStopped) {
  const Graph graph = training_graph(100);
  const Bytes in_program_order = unwrap(lifetimes(graph.without_reuses(), first_to_last(graph.num_ops()))).peak;
  PlanOptions options{.memory_budget = Bytes((graph.resident_bytes() + in_program_order).count() / 10 * 7)};
  const Plan alone = unwrap(plan(graph, options));
  std::vector<FoundSoFar> told;
  options.on_progress = [&](const FoundSoFar& found) { told.push_back(found); };
  const Plan watched = unwrap(plan(graph, options));
  EXPECT_EQ(watched.order, alone.order);
  ASSERT_FALSE(told.empty());
  for (const FoundSoFar& found : told) EXPECT_GE(found.peak, found.bound);

  std::stop_source stop;
  options.stop = stop.get_token();
  options.on_progress = [&](const FoundSoFar&) { stop.request_stop(); };
  const Result<Plan> stopped = plan(graph, options);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::stopped);
}

}  // namespace
}  // namespace lowtide
