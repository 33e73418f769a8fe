#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/order.h"
#include "lowtide/plan.h"
#include "lowtide/verify.h"
#include "order/algorithms.h"
#include "order/tasks.h"
#include "random_graph.h"
#include "random_step.h"
#include "rewrite/parts.h"
#include "rewrite/recompute.h"
#include "search/best_first.h"
#include "search/rules.h"
#include "search/sequence.h"
#include "unwrap.h"

namespace lowtide {
namespace {

// The same as a graph in which each part is an op, in program order.
Figures unrolled(const Graph& graph, const Splitting& splitting) {
  const Graph again = unwrap(run_again(graph, splitting.steps)).graph;
  const Graph divided = unwrap(run_in_parts(again, splitting.splits)).graph;
  Figures figures{peak_of(to_tasks(divided), first_to_last(divided.num_ops())), 0};
  for (OpId id(0); id.index() < divided.num_ops(); id = id.next()) {
    figures.time += static_cast<std::int64_t>(divided.op(id).cost.count());
  }
  return figures;
}

TEST(Search, FiguresAreThoseOfTheUnrolledGraph) {
  std::map<Rule, int> applied;
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const Graph graph = random_step(seed);
    const Reruns reruns = to_reruns(graph, first_to_last(graph.num_ops()));
    Rules rules(graph, reruns, seed % 4 == 0, {.hot_spots_only = seed % 3 != 0});
    SequenceSweep sweep(reruns);
    Sequence sequence{each_once(reruns), {}};
    for (int step = 0; step < 12; ++step) {
      const Figures figures = sweep.of(sequence);
      const Figures same = unrolled(graph, splitting_of(reruns, sequence));
      ASSERT_EQ(figures.peak, same.peak) << "seed " << seed << " step " << step;
      ASSERT_EQ(figures.time, same.time) << "seed " << seed << " step " << step;
      const std::vector<Change> changes = rules.changes(sequence);
      if (changes.empty()) break;
      const Change change = changes[random() % changes.size()];
      if (std::optional<Sequence> next = rules.apply(sequence, change)) {
        sequence = *std::move(next);
        ++applied[change.rule];
      }
    }
  }
  for (const Rule rule : {Rule::run_again, Rule::keep, Rule::split, Rule::recount, Rule::whole}) {
    EXPECT_GT(applied[rule], 50) << static_cast<int>(rule);
  }
}

// In-place chains, random ops, edges and updates that are left out: whatever the rules make of them is a right plan.
TEST(Search, StatesOfRandomGraphsAreRight) {
  std::map<Rule, int> applied;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random, {.axes = true});
    const Reruns reruns = to_reruns(graph, first_to_last(graph.num_ops()));
    Rules rules(graph, reruns, false, {.hot_spots_only = seed % 3 != 0});
    Sequence sequence{each_once(reruns), {}};
    for (int step = 0; step < 12; ++step) {
      const std::vector<Change> changes = rules.changes(sequence);
      if (changes.empty()) break;
      const Change change = changes[random() % changes.size()];
      std::optional<Sequence> next = rules.apply(sequence, change);
      if (!next) continue;
      sequence = *std::move(next);
      ++applied[change.rule];
      const Splitting splitting = splitting_of(reruns, sequence);
      const Rewritten again = unwrap(run_again(graph, splitting.steps));
      const Divided divided = unwrap(run_in_parts(again.graph, splitting.splits));
      const Plan made = unwrap(plan(divided.graph, {.order = "program", .recompute = "none", .parts = Parts::none}));
      Plan whole = plan_of_original(graph, again, plan_of_whole(again.graph, divided, made));
      whole.provenance.graph.reset();
      const Status status = verify(graph, whole);
      ASSERT_TRUE(status.ok()) << "seed " << seed << " step " << step << ": " << status.error().message;
    }
  }
  EXPECT_GT(applied[Rule::run_again], 500);
  EXPECT_GT(applied[Rule::split], 50);
}

TEST(Search, KeepingUndoesRunningAgain) {
  const Graph graph = random_step(3);
  const Reruns reruns = to_reruns(graph, first_to_last(graph.num_ops()));
  Rules rules(graph, reruns, false, {.split = false});
  const Sequence once{each_once(reruns), {}};
  int undone = 0;
  for (const Change& change : rules.changes(once)) {
    const Sequence again = *rules.apply(once, change);
    EXPECT_NE(graph_key(again), graph_key(once));
    for (const Change& back : rules.changes(again)) {
      if (back.rule != Rule::keep) continue;
      EXPECT_EQ(graph_key(*rules.apply(again, back)), graph_key(once));
      ++undone;
    }
  }
  EXPECT_GT(undone, 0);
}

StateSearchResult found(const Graph& graph, const StateSearchOptions& options) {
  Work work(5'000'000);
  return search_best_first(graph, first_to_last(graph.num_ops()), options, work);
}

TEST(Search, KeepsLimitsWhereItCan) {
  int smaller = 0, kept = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const Graph graph = random_step(seed);
    const Reruns reruns = to_reruns(graph, first_to_last(graph.num_ops()));
    const Figures once = SequenceSweep(reruns).of({each_once(reruns), {}});
    const StateSearchResult in_time = found(graph, {.time = once.time * 3 / 2, .exact = false});
    EXPECT_LE(in_time.figures.time, once.time * 3 / 2);
    EXPECT_LE(in_time.figures.peak, once.peak);
    smaller += in_time.figures.peak < once.peak ? 1 : 0;
    EXPECT_EQ(in_time.figures.peak, unrolled(graph, in_time.splitting).peak);
    const StateSearchResult in_memory = found(graph, {.memory = once.peak * 7 / 10, .exact = false});
    EXPECT_LE(in_memory.figures.peak, once.peak);
    kept += in_memory.figures.peak <= once.peak * 7 / 10 ? 1 : 0;
  }
  EXPECT_GT(smaller, 30);
  EXPECT_GT(kept, 20);
}

TEST(Search, ThreadsChangeNothing) {
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    const Graph graph = random_step(seed);
    const StateSearchResult one = found(graph, {.memory = 0, .exact = false});
    const StateSearchResult three = found(graph, {.memory = 0, .exact = false, .threads = 3});
    EXPECT_EQ(one.splitting.steps, three.splitting.steps);
    EXPECT_EQ(one.splitting.splits, three.splitting.splits);
    EXPECT_EQ(one.counts.distinct, three.counts.distinct);
  }
}

}  // namespace
}  // namespace lowtide
