#include <algorithm>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <tuple>

#include "base/words.h"
#include "expect_runs.h"
#include "full_size.h"
#include "gtest/gtest.h"
#include "lowtide/order.h"
#include "order/algorithms.h"
#include "order_by.h"
#include "published/checkmate/checkmate.h"
#include "random_graph.h"
#include "small_steps.h"
#include "trade/condensed.h"
#include "trade/trades.h"
#include "trade/turnless.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

const TradeAlgorithm& ours(std::string_view name) {
  return *std::ranges::find(trade_algorithms(), name, &TradeAlgorithm::name);
}

Trades found_by(std::string_view name, const TradeBound& bound, const Reruns& reruns, Work& work) {
  return name == "checkmate" ? checkmate_trades(reruns, work) : ours(name).run(bound, reruns, work);
}

bool runs_late_ops_again(std::string_view name, const Reruns& reruns) {
  return name == "checkmate" ? is_exact(reruns) : ours(name).anywhere;
}

Trades trades_of(const Graph& graph, const Reruns& reruns, std::string_view name, std::uint64_t steps) {
  Work work(steps);
  Work enough = Work::unlimited();
  const TradeBound bound(graph, reruns, enough);
  Trades trades;
  const auto add = [&](const Reruns& step) {
    const Condensed condensed = condense(step);
    for (Trade& trade : found_by(name, bound, condensed.reruns, work)) {
      trade.runs = condensed.spread(trade.runs);
      trades.push_back(std::move(trade));
    }
  };
  add(reruns);
  if (runs_late_ops_again(name, reruns)) add(without_turn(reruns));
  return best_of(std::move(trades));
}

class Baselines : public ::testing::TestWithParam<std::string> {
 protected:
  // All trades are real, and none is beaten by another.
  void expect_right_trades(const Graph& graph, std::span<const OpId> order, std::uint64_t steps) const {
    const Reruns reruns = to_reruns(graph, order);
    const Trades trades = trades_of(graph, reruns, GetParam(), steps);
    for (std::size_t i = 0; i < trades.size(); ++i) {
      expect_right(graph, reruns, trades[i]);
      if (i > 0) {
        EXPECT_LT(trades[i - 1].cost, trades[i].cost);
        EXPECT_GT(trades[i - 1].peak, trades[i].peak);
      }
    }
  }
};

TEST_P(Baselines, RandomGraphs) {
  std::mt19937_64 random(11);
  for (std::size_t i = 0; i < trials(3000, 200); ++i) {
    const Graph graph = random_graph(random);
    expect_right_trades(graph, random_order(graph, random), 20'000'000);
    if (HasFailure()) FAIL() << "graph " << i;
  }
}

TEST_P(Baselines, TrainingSteps) {
  for (const std::size_t ops : {100u, 300u, 600u}) {
    if (kSanitized && ops > 100) continue;
    const Graph graph = training_graph(ops);
    expect_right_trades(graph, first_to_last(ops), 300'000'000);
    const Reruns reruns = to_reruns(graph, first_to_last(ops));
    EXPECT_LT(trades_of(graph, reruns, GetParam(), 300'000'000).back().peak, reruns.peak) << ops << " ops";
  }
}

TEST_P(Baselines, NeverBetterThanAnyPlan) {
  std::mt19937_64 random(5);
  for (std::size_t i = 0; i < trials(1000, 60); ++i) {
    const Graph graph = small_step(random);
    const Reruns reruns = to_reruns(graph, order_by("best", graph));
    for (const Trade& trade : trades_of(graph, reruns, GetParam(), 50'000'000)) {
      expect_right(graph, reruns, trade);
      const std::optional<std::int64_t> least = least_cost_within(graph, trade.peak);
      ASSERT_TRUE(least) << "step " << i;
      EXPECT_GE(trade.cost, *least) << "step " << i;
    }
    if (HasFailure()) return;
  }
}

// What is left undone when the work ends is no reason for a wrong trade.
TEST_P(Baselines, AnyWork) {
  const Graph graph = training_graph(100);
  for (std::uint64_t steps = 1; steps < (kSanitized ? 100'000'000 : 1'000'000'000); steps *= 30) {
    expect_right_trades(graph, first_to_last(100), steps);
  }
}

std::vector<std::string> all_names() {
  std::vector<std::string> names = {"checkmate"};
  for (const TradeAlgorithm& algorithm : trade_algorithms()) names.emplace_back(algorithm.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Baselines, ::testing::ValuesIn(all_names()), [](const auto& each) { return each.param; });

// 18 ops make 10 bytes each of what the one before made; then 18 ops take these from the last to the first, with what
// the one before them made. Every op costs 1.
Graph deep_chain() {
  constexpr std::size_t kLayers = 18;
  GraphBuilder builder;
  std::vector<BufferId> made;
  const auto add_op = [&](const std::vector<BufferId>& reads) {
    const std::string name = words("op", made.size());
    OpSpec spec{.name = name, .cost = Nanos(1)};
    for (const BufferId read : reads) spec.reads.push_back(unwrap(builder.add_value(read, "u8", {})));
    made.push_back(unwrap(builder.add_buffer({.size = Bytes(10), .name = name})));
    spec.writes = {made.back()};
    unwrap(builder.add_op(spec));
  };
  add_op({});
  for (std::size_t i = 1; i < kLayers; ++i) add_op({made.back()});
  add_op({made.back()});
  for (std::size_t i = kLayers - 1; i-- > 0;) add_op({made[i], made.back()});
  return unwrap(std::move(builder).build());
}

bool is_within(const Trades& trades, std::int64_t cost, std::int64_t peak) {
  return std::ranges::any_of(trades, [&](const Trade& trade) { return trade.cost <= cost && trade.peak <= peak; });
}

// Three stages of six ops. 5 and 11 stay, 0 to 4 and 6 to 10 run again: a cost of 10. At the turn there are 5, 11 and
// 12 to 17, and 10 bytes are made: 90.
TEST(Chen, GroupsOfAChain) {
  const Graph graph = deep_chain();
  const Reruns reruns = to_reruns(graph, first_to_last(graph.num_ops()));
  ASSERT_EQ(reruns.peak, 190);
  const Trades trades = trades_of(graph, reruns, "chen", 1'000'000'000);
  const auto found = std::ranges::find(trades, 10, &Trade::cost);
  ASSERT_NE(found, trades.end());
  EXPECT_EQ(found->peak, 90);
}

// What is best for a chain is no worse than what is usual.
TEST(Rotor, AsGoodAsGroupsOfAChain) {
  const Graph graph = deep_chain();
  const Reruns reruns = to_reruns(graph, first_to_last(graph.num_ops()));
  const Trades trades = trades_of(graph, reruns, "rotor", 1'000'000'000);
  for (const Trade& other : trades_of(graph, reruns, "chen", 1'000'000'000)) {
    EXPECT_TRUE(is_within(trades, other.cost, other.peak)) << other.cost << " " << other.peak;
  }
}

TEST(Dtr, RunsNothingAgainWhereAllFits) {
  const Graph graph = deep_chain();
  const Reruns reruns = to_reruns(graph, first_to_last(graph.num_ops()));
  const Trades trades = trades_of(graph, reruns, "dtr", 1'000'000'000);
  ASSERT_FALSE(trades.empty());
  EXPECT_EQ(trades.front().cost, 0);
  EXPECT_EQ(trades.front().peak, reruns.peak);
  EXPECT_LE(trades.back().peak, reruns.peak / 2);
}

// The least cost with which the first runs come in the given order and no more than `budget` is held, where before each
// first run units run again from the first to the last, each once at most. Tries all; no op works in place.
std::optional<std::int64_t> least_cost_in_stages(const Reruns& r, std::int64_t budget) {
  using State = std::tuple<Position, Unit, std::uint32_t>;  // next first run, first unit that may run again, held
  using Entry = std::pair<std::int64_t, State>;
  const auto mask = [](std::span<const Item> items) {
    std::uint32_t bits = 0;
    for (const Item item : items) bits |= 1u << item;
    return bits;
  };
  const auto bytes = [&](std::uint32_t held) {
    std::int64_t sum = 0;
    for (Item item = 0; item < r.num_items(); ++item) sum += (held >> item & 1u) != 0 ? r.size[item] : 0;
    return sum;
  };
  std::map<State, std::int64_t> known;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  const auto reach = [&](std::int64_t cost, State state) {
    const auto [place, is_new] = known.try_emplace(state, cost);
    if (!is_new && place->second <= cost) return;
    place->second = cost;
    open.push({cost, state});
  };
  const auto can_run = [&](Position p, std::uint32_t held) {
    return (mask(r.takes[p]) & ~held) == 0 && bytes(held | mask(r.makes[p])) + r.workspace[p] <= budget;
  };
  reach(0, {0, 0, 0});
  while (!open.empty()) {
    const auto [cost, state] = open.top();
    open.pop();
    if (known[state] < cost) continue;
    const auto [next, unit, held] = state;
    if (next == r.num_ops()) return cost;
    for (Item item = 0; item < r.num_items(); ++item) {
      if ((held >> item & 1u) != 0 && !r.kept[item]) reach(cost, {next, unit, held & ~(1u << item)});
    }
    if (can_run(next, held)) reach(cost, {next + 1, 0, held | mask(r.makes[next])});
    for (Unit again = unit; again < r.num_units(); ++again) {
      const Position p = r.members[again].front();
      if (p >= next || !r.repeatable[again] || next > r.until[again] || !can_run(p, held)) continue;
      if ((mask(r.makes[p]) & held) == 0) reach(cost + r.cost[p], {next, again + 1, held | mask(r.makes[p])});
    }
  }
  return std::nullopt;
}

TEST(Checkmate, LeastCostInTheGivenOrder) {
  std::mt19937_64 random(3);
  std::size_t compared = 0;
  for (std::size_t i = 0; i < trials(500, 40); ++i) {
    const Graph graph = small_step(random).without_reuses();
    const Reruns reruns = to_reruns(graph, first_to_last(graph.num_ops()));
    if (reruns.num_units() < reruns.num_ops()) continue;  // something is in place
    for (std::int64_t budget = 20; budget <= reruns.peak; budget += 10) {
      Work work = Work::unlimited();
      const std::optional<Runs> runs = checkmate_within(reruns, budget, work);
      const std::optional<std::int64_t> least = least_cost_in_stages(reruns, budget);
      ASSERT_EQ(runs.has_value(), least.has_value()) << "step " << i << ", budget " << budget;
      if (!runs) continue;
      const Outcome outcome = Evaluation(reruns).of(*runs);
      EXPECT_EQ(outcome.cost, *least) << "step " << i << ", budget " << budget;
      EXPECT_LE(outcome.peak, budget) << "step " << i;
      compared += *least > 0 ? 1 : 0;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(compared, trials(500, 40) / 2);
}

}  // namespace
}  // namespace lowtide
