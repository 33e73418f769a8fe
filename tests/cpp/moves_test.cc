#include "trade/moves.h"

#include <algorithm>
#include <cstdio>
#include <random>

#include "full_size.h"
#include "gtest/gtest.h"
#include "lowtide/lifetimes.h"
#include "makers.h"
#include "order/algorithms.h"
#include "processor_time.h"
#include "random_graph.h"
#include "rewrite/recompute.h"
#include "trade/drops.h"
#include "trade/price_cuts.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

// The picture of peak_tree.h.
TEST(PeakTree, Ranges) {
  PeakTree tree(4);
  tree.add(1, 2, 5);
  tree.add(2, 3, 4);
  EXPECT_EQ(tree.highest(), 9);
  EXPECT_EQ(tree.highest_at(), 2u);
  tree.add(2, 2, -6);
  EXPECT_EQ(tree.highest(), 5);
  EXPECT_EQ(tree.highest_at(), 1u);
}

TEST(PeakTree, BeginsWithAmounts) {
  PeakTree tree(std::vector<std::int64_t>{0, 5, 9, 4, 7});
  EXPECT_EQ(tree.highest(), 9);
  EXPECT_EQ(tree.highest_at(), 2u);
  EXPECT_EQ(tree.highest_in(3, 4), 7);
  tree.add(2, 3, -6);
  EXPECT_EQ(tree.highest(), 7);
  EXPECT_EQ(tree.highest_at(), 4u);
}

// Of the rewritten graph: by other code than that of any search.
std::int64_t peak_of_runs(const Graph& graph, const Reruns& reruns, const Runs& runs) {
  std::vector<OpId> steps;
  for (const auto& [op, again] : runs) steps.push_back(reruns.order[op]);
  const Rewritten rewritten = unwrap(run_again(graph, steps));
  return static_cast<std::int64_t>(
      unwrap(lifetimes(rewritten.graph, first_to_last(rewritten.graph.num_ops()))).peak.count());
}

std::vector<Unit> repeatable_units(const Reruns& reruns) {
  std::vector<Unit> units;
  for (Unit unit = 0; unit < reruns.num_units(); ++unit) {
    if (reruns.repeatable[unit]) units.push_back(unit);
  }
  return units;
}

struct Place {
  Unit unit;
  Position slot;
};

// Where a unit may run again, from `from` on: behind its first run, and while what it reads is there.
std::optional<Place> random_place(const Reruns& reruns, std::span<const Unit> units, Position from,
                                  std::mt19937_64& random) {
  if (units.empty()) return std::nullopt;
  const Unit unit = units[random() % units.size()];
  const Position first = std::max(from, reruns.members[unit].back() + 1);
  if (first == reruns.num_ops()) return std::nullopt;
  const auto slot = static_cast<Position>(first + random() % (reruns.num_ops() - first));
  if (slot > reruns.until[unit]) return std::nullopt;
  return Place{unit, slot};
}

void expect_exact(const Graph& graph, std::span<const OpId> order, int moves, std::mt19937_64& random) {
  const Reruns reruns = to_reruns(graph, order);
  const std::vector<Unit> units = repeatable_units(reruns);
  Choice choice = keep_all(reruns);
  for (const Item item : reruns.candidates) choice[item] = random() % 3 == 0 ? Fate::dropped : choice[item];
  Dropping dropping(reruns);
  Moves changing(reruns, needed_runs(reruns, dropping.runs_of(choice)));
  ASSERT_EQ(changing.peak(), peak_of_runs(graph, reruns, changing.runs()));
  for (int i = 0; i < moves; ++i) {
    const std::optional<Place> place = random_place(reruns, units, 0, random);
    if (!place) continue;
    const std::int64_t before = changing.peak();
    const std::int64_t cost = changing.cost();
    const bool there = changing.runs_again(place->unit, place->slot);
    there ? changing.remove(place->unit, place->slot) : changing.add(place->unit, place->slot);
    ASSERT_EQ(changing.peak(), peak_of_runs(graph, reruns, changing.runs())) << "move " << i;
    ASSERT_EQ(changing.cost() - cost, (there ? -1 : 1) * reruns.unit_cost[place->unit]);
    if (random() % 2 == 0) continue;
    there ? changing.add(place->unit, place->slot) : changing.remove(place->unit, place->slot);
    ASSERT_EQ(changing.peak(), before);
    ASSERT_EQ(changing.cost(), cost);
  }
}

TEST(Moves, AreExact) {
  std::mt19937_64 random(3);
  for (std::size_t i = 0; i < trials(3000, 3000); ++i) {
    const Graph graph = random_graph(random);
    expect_exact(graph, random_order(graph, random), 10, random);
    if (HasFailure()) FAIL() << "graph " << i;
  }
  for (const std::size_t ops : {60u, 200u, 600u}) {
    const Graph graph = training_graph(ops);
    expect_exact(graph, first_to_last(ops), kSanitized ? 50 : 400, random);
  }
}

// A chain of early ops, all of which are needed late. The first one runs again before an early op, as some searches
// have it; that is taken back, the moments are divided anew because there is no room left before a late op, and it is
// put back.
TEST(Moves, PutBackBeforeAnEarlyOp) {
  constexpr std::size_t kEarly = 30;
  std::vector<Maker> makers = {{128}};
  for (std::size_t i = 1; i < kEarly; ++i) makers.push_back({128, {i - 1}});
  for (std::size_t i = kEarly; i-- > 0;) makers.push_back({8, {i, makers.size() - 1}});
  const Graph graph = graph_of(makers);
  const Reruns reruns = to_reruns(graph, first_to_last(graph.num_ops()));
  constexpr Position kSlot = 5;
  ASSERT_LT(kSlot, reruns.turn);
  Runs runs = each_once(reruns);
  runs.insert(runs.begin() + kSlot, {0, true});
  Moves moves(reruns, runs);
  const Unit first = reruns.unit[0];
  moves.remove(first, kSlot);
  const auto last = static_cast<Position>(reruns.num_ops() - 1);
  for (Position op = 1; op < kEarly - 1; ++op) moves.add(reruns.unit[op], last);
  moves.add(first, kSlot);
  EXPECT_TRUE(moves.runs_again(first, kSlot));
  EXPECT_EQ(moves.peak(), peak_of_runs(graph, reruns, moves.runs()));
  for (Position op = 1; op < kEarly - 1; ++op) moves.remove(reruns.unit[op], last);
  EXPECT_EQ(moves.runs(), runs);
  EXPECT_EQ(moves.peak(), Evaluation(reruns).of(runs).peak);
}

// All early ops run again before the last op, in an order that leaves no room where the next one belongs: moments are
// spread out again and again, and divided anew when there are too few.
TEST(Moves, ManyBeforeOneOp) {
  constexpr std::size_t kEarly = 120;
  std::vector<Maker> makers = {{128}};
  for (std::size_t i = 1; i < kEarly; ++i) makers.push_back({128, {i - 1}});
  for (std::size_t i = kEarly; i-- > 0;) makers.push_back({8, {i, makers.size() - 1}});
  const Graph graph = graph_of(makers);
  const Reruns reruns = to_reruns(graph, first_to_last(graph.num_ops()));
  const auto last = static_cast<Position>(reruns.num_ops() - 1);
  Moves moves(reruns, each_once(reruns));
  for (Position op = kEarly - 1; op-- > 0;) {
    moves.add(reruns.unit[op], last);
    ASSERT_EQ(moves.peak(), peak_of_runs(graph, reruns, moves.runs())) << "op " << op;
  }
  EXPECT_EQ(moves.runs().size(), reruns.num_ops() + kEarly - 1);
}

// Moves from a state in the middle of the front: add or remove one unit, read the peak, and take it back.
TEST(Moves, AreFast) {
  const std::size_t ops = full_size() ? 15000 : 3000;
  const Graph graph = training_graph(ops);
  const Reruns reruns = to_reruns(graph, first_to_last(ops));
  Work work = Work::unlimited();
  Choice choice = choices_by_price(reruns, work).back();
  Dropping dropping(reruns);
  Moves changing(reruns, needed_runs(reruns, dropping.runs_of(choice)));
  const std::vector<Unit> units = repeatable_units(reruns);
  std::mt19937_64 random(4);
  for (std::size_t i = 0; i < trials(1000, 100); ++i) {
    const std::optional<Place> place = random_place(reruns, units, reruns.turn, random);
    if (!place || changing.runs_again(place->unit, place->slot)) continue;
    changing.add(place->unit, place->slot);
    if (i % 10 == 0) {
      ASSERT_EQ(changing.peak(), peak_of_runs(graph, reruns, changing.runs()));
    }
    changing.remove(place->unit, place->slot);
  }
  std::vector<Place> places;
  while (places.size() < 100'000) {
    const std::optional<Place> place = random_place(reruns, units, reruns.turn, random);
    if (place) places.push_back(*place);
  }
  std::int64_t seen = 0;
  const double begin = processor_seconds();
  for (const auto& [unit, slot] : places) {
    const bool there = changing.runs_again(unit, slot);
    there ? changing.remove(unit, slot) : changing.add(unit, slot);
    seen = std::max(seen, changing.peak());
    there ? changing.add(unit, slot) : changing.remove(unit, slot);
  }
  const double rate = static_cast<double>(places.size()) / (processor_seconds() - begin);
  std::printf("%zu ops, %zu runs: %.0f moves a second (%lld)\n", ops, changing.runs().size(), rate,
              static_cast<long long>(seen));
  if (!kSanitized) {
    EXPECT_GT(rate, 20'000.0);
  }
}

}  // namespace
}  // namespace lowtide
