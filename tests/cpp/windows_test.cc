#include "trade/windows.h"

#include <algorithm>
#include <cstdio>
#include <random>

#include "expect_runs.h"
#include "full_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/plan.h"
#include "makers.h"
#include "order/algorithms.h"
#include "order_by.h"
#include "plan/traded.h"
#include "random_graph.h"
#include "sanitized.h"
#include "small_steps.h"
#include "trade/condensed.h"
#include "trade/drops.h"
#include "trade/moves.h"
#include "trade/trade_bound.h"
#include "trade/turnless.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Micro-batches of three layers. Each layer saves 128 bytes, each gradient has 64.
Graph micro_batches(std::size_t count) {
  std::vector<Maker> makers;
  for (std::size_t batch = 0; batch < count; ++batch) {
    const std::size_t first = makers.size();
    makers.push_back({128});
    makers.push_back({128, {first}});
    makers.push_back({128, {first + 1}});
    for (std::size_t i = 0; i < 3; ++i) {
      makers.push_back({64, {first + 2 - i, first + 2 + i}, 0, 0, kBackward});
    }
  }
  return graph_of(makers);
}

// The picture of windows.h. At the turn 384 bytes are saved.
TEST(Windows, MicroBatches) {
  const Graph graph = micro_batches(2);
  const Reruns step = to_reruns(graph, first_to_last(graph.num_ops()));
  const std::vector<Window> windows = windows_of(step);
  ASSERT_THAT(windows, SizeIs(2));
  EXPECT_EQ(windows[0].begin, 0u);
  EXPECT_EQ(windows[0].end, windows[1].begin);
  EXPECT_EQ(windows[1].end, 12u);
  for (const Window& window : windows) {
    EXPECT_EQ(window.begin + window.reruns.turn - 1, window.begin == 0 ? 3u : 9u);
    EXPECT_EQ(window.reruns.peak, step.peak);
    EXPECT_THAT(window.reruns.candidates, SizeIs(3));
  }
}

TEST(Windows, OneTurnIsOneWindow) {
  const Graph graph = micro_batches(1);
  EXPECT_THAT(windows_of(to_reruns(graph, first_to_last(graph.num_ops()))), SizeIs(0));
}

// What runs again in the windows together needs what it needs in each.
TEST(Windows, AddUp) {
  std::mt19937_64 random(5);
  int cut = 0;
  for (int i = 0; i < (kSanitized ? 500 : 3'000); ++i) {
    const Graph graph = i % 20 == 0 ? micro_batches(2 + random() % 4) : two_small_turns(random);
    const Reruns step = to_reruns(graph, first_to_last(graph.num_ops()));
    std::vector<Trades> trades;
    for (const Window& window : windows_of(step)) {
      for (const Moves::Waiting& waiting : Moves(window.reruns, each_once(window.reruns)).waiting_at_peak()) {
        ASSERT_LT(waiting.next_use, window.reruns.num_ops()) << "nothing can run again behind the window";
      }
      const Condensed condensed = condense(window.reruns);
      Choice choice = keep_all(condensed.reruns);
      for (const Item item : condensed.reruns.candidates) choice[item] = static_cast<Fate>(random() % 2);
      Dropping dropping(condensed.reruns);
      const Runs runs = needed_runs(condensed.reruns, dropping.runs_of(choice));
      const Outcome outcome = Evaluation(condensed.reruns).of(runs);
      trades.push_back({{outcome.cost, outcome.peak, window.spread(condensed.spread(runs))}});
    }
    if (trades.empty()) continue;
    ++cut;
    for (const Trade& trade : together(trades)) expect_right(graph, step, trade);
    if (HasFailure()) FAIL() << "graph " << i;
  }
  EXPECT_GT(cut, 100);
}

// Of two turns too, the bound is below all that any plan reaches, and most trades are the best there are.
TEST(Windows, EveryPlanOfTwoSmallTurns) {
  const int steps = full_size() ? 300 : kSanitized ? 5 : 25;
  std::mt19937_64 random(9);
  Compared compared;
  for (int i = 0; i < steps; ++i) {
    const Graph graph = two_small_turns(random);
    const Order order = order_by("best", graph);
    Work work = Work::unlimited();
    const TradeBound bound(graph, to_reruns(graph, order), work);
    const std::vector<TradedOrder> trades = unwrap(all_trades(graph, order, {}));
    SCOPED_TRACE(::testing::Message() << "step " << i);
    compare_with_every_plan(graph, bound, trades, trades.front().peak, compared);
    if (HasFailure()) return;
  }
  std::printf("%d of %d trades are the best there are\n", compared.best, compared.points);
  EXPECT_GE(compared.best, compared.points * 8 / 10);
}

// Four micro-batches, of which each needs 3 * 128 + 64 bytes at its turn: in less, each runs something again.
TEST(Windows, BudgetsAreKeptInEachTurn) {
  const Graph graph = micro_batches(4);
  const Plan made = unwrap(plan(graph, {.memory_budget = Bytes(384)}));
  EXPECT_LE(made.arena, Bytes(384));
  EXPECT_GE(made.order.size(), graph.num_ops() + 4);
}

// A generator, then a critic that is run forwards and backwards on what it makes, twice, then the generator's backward
// pass. Between the two no window can be cut: what the generator saves is half of what waits at each turn.
Graph generator_and_critic() {
  std::vector<Maker> makers = {{128}, {128, {0}}, {128, {1}}, {128, {2}}};
  std::size_t last = 3;
  for (int turn = 0; turn < 2; ++turn) {
    const std::size_t first = makers.size();
    for (std::size_t i = 0; i < 4; ++i) makers.push_back({128, {i == 0 ? 3 : first + i - 1}});
    for (std::size_t i = 0; i < 4; ++i) makers.push_back({64, {first + 3 - i, first + 3 + i}, 0, 0, kBackward});
    last = makers.size() - 1;
  }
  for (std::size_t i = 0; i < 4; ++i) makers.push_back({64, {3 - i, last + i}, 0, 0, kBackward});
  return graph_of(makers);
}

TEST(Turnless, SeveralTurns) {
  EXPECT_FALSE(has_several_turns(micro_batches(1)));
  EXPECT_TRUE(has_several_turns(micro_batches(2)));
  EXPECT_TRUE(has_several_turns(generator_and_critic()));
}

TEST(Turnless, FindsWhatNoTurnShows) {
  const Graph graph = generator_and_critic();
  const Reruns step = to_reruns(graph, first_to_last(graph.num_ops()));
  Work work = Work::unlimited();
  const TradeBound bound(graph, step, work);
  Work for_turn(50'000'000), for_all(50'000'000);
  const Trades one_turn = auto_trades(bound, step, for_turn);
  const Trades all = polished_without_turn(bound, step, one_turn, for_all);
  EXPECT_LT(all.back().peak, one_turn.back().peak);
  for (const Trade& trade : all) expect_right(graph, step, trade);
}

// In any graph and order: in-place chains, resident buffers that change, random ops.
TEST(Turnless, IsRightEverywhere) {
  std::mt19937_64 random(17);
  for (int i = 0; i < (kSanitized ? 100 : 500); ++i) {
    const Graph graph = random_graph(random);
    const Reruns step = to_reruns(graph, random_order(graph, random));
    Work work(1'000'000);
    const TradeBound bound(graph, step, work);
    Work search(2'000'000);
    const Trades trades = polished_without_turn(bound, step, {{0, step.peak, each_once(step)}}, search);
    for (const Trade& trade : trades) expect_right(graph, step, trade);
    if (HasFailure()) FAIL() << "graph " << i;
  }
}

}  // namespace
}  // namespace lowtide
