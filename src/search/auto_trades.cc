#include <algorithm>
#include <array>
#include <utility>

#include "search/front.h"
#include "search/local_search.h"
#include "search/price_cuts.h"
#include "search/segments.h"
#include "search/trade_bound.h"
#include "search/trades.h"

namespace lowtide {
namespace {

constexpr Position kGrains[] = {4, 8, 24};  // ops between two boundaries, at least
constexpr int kLadder = 48;  // peaks for which the segments are asked, from what the order needs down to nothing
// Costs, as shares of the step's, at which more is tried.
constexpr std::array kShares = {0.01, 0.02, 0.03, 0.05, 0.075, 0.10, 0.125, 0.15, 0.20, 0.25, 0.33, 0.50, 1.00};
constexpr int kHalvings = 5;
constexpr std::array kLower = {200, 100, 50, 25, 12};  // parts of the peak by which greedy drops aim lower
constexpr std::size_t kTries = 4000;                   // of one annealing
constexpr int kRounds = 24;
constexpr double kHelped = 0.9;  // how much is hoped for from another one
constexpr double kFailed = 0.4;

class Search {
 public:
  Search(const Graph& graph, const Replays& replays, Work& work)
      : r_(replays),
        work_(work),
        bound_(graph, replays, work),
        explorer_(replays, front_, work),
        library_(choices_by_price(replays, work)) {}

  Front run() && {
    for (Choice choice : library_) explorer_.explore(choice);
    ask_segments();
    for (const double share : kShares) drop_more(limit_of(share));
    for (const double share : kShares) keep_more(limit_of(share));
    for (const double share : kShares) drop_more(limit_of(share));
    anneal_where_open();
    return std::move(front_);
  }

 private:
  std::int64_t limit_of(double share) const {
    return static_cast<std::int64_t>(share * static_cast<double>(r_.total_cost));
  }

  void ask_segments() {
    for (const Position least_ops : kGrains) {
      const SegmentProgram segments(r_, library_, least_ops, work_);
      const auto ask = [&](std::int64_t peak) -> std::optional<Outcome> {
        std::optional<Choice> choice = segments.cheapest_within(peak, work_);
        if (!choice) return std::nullopt;
        return explorer_.explore(*choice);
      };
      for (int rung = 0; rung < kLadder; ++rung) ask(r_.peak - r_.peak * rung / kLadder);
      for (const double share : kShares) {
        const FrontPoint* point = front_.within_cost(limit_of(share));
        if (point == nullptr) continue;
        std::int64_t high = point->peak;
        std::int64_t low = std::max<std::int64_t>(0, high - 2 * r_.peak / kLadder);
        for (int i = 0; i < kHalvings; ++i) {
          const std::int64_t middle = low + (high - low) / 2;
          const std::optional<Outcome> outcome = ask(middle);
          (outcome && outcome->cost <= limit_of(share) ? high : low) = middle;
        }
      }
    }
  }

  // Again and again where the distance to the bound is the largest; less where that did not help.
  void anneal_where_open() {
    std::array<double, kShares.size()> hope;
    hope.fill(1.0);
    for (int round = 0; round < kRounds && work_.left() > 0; ++round) {
      std::size_t most = 0;
      double widest = 0;
      for (std::size_t i = 0; i < kShares.size(); ++i) {
        const FrontPoint* point = front_.within_cost(limit_of(kShares[i]));
        if (point == nullptr) continue;
        const double open = hope[i] * static_cast<double>(point->peak - bound_.least_peak(limit_of(kShares[i])));
        if (open > widest) {
          widest = open;
          most = i;
        }
      }
      if (widest == 0) return;
      const std::int64_t limit = limit_of(kShares[most]);
      const FrontPoint start = *front_.within_cost(limit);
      anneal(explorer_, library_, start.choice, limit, kTries, static_cast<std::uint64_t>(round + 1));
      hope[most] *= front_.within_cost(limit)->peak < start.peak ? kHelped : kFailed;
    }
  }

  void drop_more(std::int64_t limit) {
    for (const int part : kLower) {
      const FrontPoint* point = front_.within_cost(limit);
      if (point == nullptr) return;
      drop_towards(explorer_, point->choice, point->peak - point->peak / part, limit);
    }
  }

  // Of the point within the limit and of the one just above it.
  void keep_more(std::int64_t limit) {
    const FrontPoint* point = front_.within_cost(limit);
    if (point == nullptr) return;
    std::vector<FrontPoint> points = {*point};
    if (point != &front_.points().back()) points.push_back(*(point + 1));
    for (const FrontPoint& start : points) keep_within(explorer_, start.choice, start.peak);
  }

  const Replays& r_;
  Work& work_;
  TradeBound bound_;
  Front front_;
  Explorer explorer_;
  std::vector<Choice> library_;
};

}  // namespace

Trades auto_trades(const Graph& graph, const Replays& replays, Work& work) {
  const Front front = Search(graph, replays, work).run();
  Dropping dropping(replays);
  Trades trades;
  for (const FrontPoint& point : front.points()) {
    Choice choice = point.choice;
    trades.push_back({point.cost, point.peak, needed_runs(replays, dropping.runs_of(choice))});
  }
  return trades;
}

}  // namespace lowtide
