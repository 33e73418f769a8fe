#include "search/reschedule.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/plan.h"
#include "lowtide/verify.h"
#include "makers.h"
#include "order/algorithms.h"
#include "order/best.h"
#include "order/tasks.h"
#include "random_graph.h"
#include "random_step.h"
#include "rewrite/parts.h"
#include "rewrite/recompute.h"
#include "search/rules.h"
#include "unwrap.h"

namespace lowtide {
namespace {

// Each part an op, in the order of the sequence.
struct Unrolled {
  Rewritten again;
  Divided divided;
};

Unrolled unrolled(const Graph& graph, const Reruns& reruns, const Sequence& sequence) {
  const Splitting splitting = splitting_of(reruns, sequence);
  Rewritten again = unwrap(run_again(graph, splitting.steps));
  Divided divided = unwrap(run_in_parts(again.graph, splitting.splits));
  return {std::move(again), std::move(divided)};
}

std::int64_t peak_of(const Graph& graph) {
  return peak_of(to_tasks(graph), first_to_last(graph.num_ops()));
}

// Every run reads what it should, the judge says.
bool is_right(const Graph& graph, const Unrolled& made) {
  const Plan parts = unwrap(plan(made.divided.graph, {.order = "program", .recompute = "none", .parts = Parts::none}));
  Plan whole = plan_of_original(graph, made.again, plan_of_whole(made.again.graph, made.divided, parts));
  whole.provenance.graph.reset();
  return verify(graph, whole).ok();
}

std::vector<std::pair<Position, bool>> sorted(const Runs& runs) {
  std::vector<std::pair<Position, bool>> all;
  for (const Run& run : runs) all.emplace_back(run.op, run.again);
  std::ranges::sort(all);
  return all;
}

// Changes a step at random and visits each sequence on the way; what `visit` makes of it is changed next.
template <typename Visit>
void walk(Rules& rules, const Reruns& reruns, std::mt19937_64& random, int changes, const Visit& visit) {
  Sequence sequence{each_once(reruns), {}};
  for (int step = 0; step < changes; ++step) {
    visit(sequence);
    const std::vector<Change> possible = rules.changes(sequence);
    if (possible.empty()) return;
    if (std::optional<Sequence> next = rules.apply(sequence, possible[random() % possible.size()])) {
      sequence = *std::move(next);
    }
  }
}

// The picture of reschedule.h. While p runs: 100 + 50 + 10 and a workspace of 100; then all but the 50.
TEST(Reschedule, GoesBehind) {
  const Graph graph = graph_of(std::vector<Maker>{{100}, {50, {0}}, {10, {0}, 100}, {1, {0, 1, 2}}});
  const Reruns reruns = to_reruns(graph, first_to_last(4));
  Sequence sequence{each_once(reruns), {}};
  EXPECT_EQ(SequenceSweep(reruns).of(sequence).peak, 260);
  EXPECT_EQ(Reschedule(graph, reruns).lower(sequence).peak, 210);
  EXPECT_EQ(sequence.runs, (Runs{{0, false}, {2, false}, {1, false}, {3, false}}));
}

TEST(Reschedule, IsTheSameStepWithALowerPeak) {
  int lower = 0, with_regions = 0;
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Graph graph = seed % 2 == 0 ? random_step(seed) : random_graph(random);
    const Reruns reruns = to_reruns(graph, random_order(graph, random));
    Rules rules(graph, reruns, seed % 4 == 0, {.hot_spots_only = seed % 3 != 0});
    SequenceSweep sweep(reruns);
    Reschedule reschedule(graph, reruns);
    walk(rules, reruns, random, 12, [&](Sequence& sequence) {
      const Sequence before = sequence;
      const Figures old = sweep.of(before);
      const Figures figures = reschedule.lower(sequence);
      EXPECT_LE(figures.peak, old.peak);
      EXPECT_LE(figures.time, old.time);
      EXPECT_EQ(sorted(sequence.runs), sorted(before.runs));
      EXPECT_EQ(sequence.regions.size(), before.regions.size());
      const Unrolled same = unrolled(graph, reruns, sequence);
      EXPECT_EQ(figures.peak, peak_of(same.divided.graph));
      EXPECT_TRUE(is_right(graph, same));
      if (figures.peak < old.peak) {
        ++lower;
        with_regions += sequence.regions.empty() ? 0 : 1;
      }
    });
  }
  EXPECT_GT(lower, 200);
  EXPECT_GT(with_regions, 10);
}

// From random orders, against a search of all orders of a graph that runs the same. With windows of a few runs, each
// kind of moves finds what the other does not.
TEST(Reschedule, IsNearlyAsGoodAsAFullSearch) {
  int states = 0, least = 0, least_in_small = 0, least_far = 0, least_near = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const Reruns reruns = to_reruns(graph, random_order(graph, random));
    Rules rules(graph, reruns, false, {.split = false});
    Reschedule large(graph, reruns), small(graph, reruns, {.reach = 2});
    Reschedule far(graph, reruns, {.windows = 0}), near(graph, reruns, {.cuts = 0, .reach = 2});
    walk(rules, reruns, random, 4, [&](Sequence& sequence) {
      const auto peak_by = [&](Reschedule& reschedule) {
        Sequence lowered = sequence;
        return reschedule.lower(lowered).peak;
      };
      const Tasks tasks = to_tasks(unrolled(graph, reruns, sequence).divided.graph);
      Work work(100'000'000);
      const std::int64_t best = best_order(tasks, 1, work).peak;
      ++states;
      least += peak_by(large) <= best ? 1 : 0;
      least_in_small += peak_by(small) <= best ? 1 : 0;
      least_far += peak_by(far) <= best ? 1 : 0;
      least_near += peak_by(near) <= best ? 1 : 0;
    });
  }
  EXPECT_GE(least, states * 97 / 100);
  EXPECT_LT(least_far, least_in_small);
  EXPECT_LT(least_near, least_in_small);
}

TEST(Reschedule, IsAPureFunction) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_step(seed);
    const Reruns reruns = to_reruns(graph, first_to_last(graph.num_ops()));
    Rules rules(graph, reruns, false, {});
    Reschedule used(graph, reruns);
    walk(rules, reruns, random, 8, [&](Sequence& sequence) {
      Sequence other = sequence;
      used.lower(sequence);
      Reschedule(graph, reruns).lower(other);
      EXPECT_EQ(sequence.runs, other.runs);
    });
  }
}

}  // namespace
}  // namespace lowtide
