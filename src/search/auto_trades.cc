#include <algorithm>
#include <array>
#include <utility>

#include "search/front.h"
#include "search/polish.h"
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
constexpr std::uint64_t kRounds = 40;  // among which the work is divided that is left for polishing
constexpr double kCloseEnough = 1e-4;  // to the bound, as a part of the peak
constexpr double kHelped = 0.9;        // how much is hoped for from another round
constexpr double kFailed = 0.4;

class Search {
 public:
  Search(const Graph& graph, const Replays& replays, Work& work)
      : r_(replays),
        work_(work),
        bound_(graph, replays, work),
        explorer_(replays, front_, work),
        library_(choices_by_price(replays, work)) {}

  Trades run() && {
    for (Choice choice : library_) explorer_.explore(choice);
    ask_segments();
    Dropping dropping(r_);
    for (const FrontPoint& point : front_.points()) {
      Choice choice = point.choice;
      trades_.push_back({point.cost, point.peak, needed_runs(r_, dropping.runs_of(choice))});
    }
    polish_where_open();
    return best_of(std::move(trades_));
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

  const Trade* lowest_within(std::int64_t cost) const {
    const Trade* lowest = nullptr;
    for (const Trade& trade : trades_) {
      if (trade.cost <= cost && (lowest == nullptr || trade.peak < lowest->peak)) lowest = &trade;
    }
    return lowest;
  }

  // Again and again where the distance to the bound is the largest; less where that did not help.
  void polish_where_open() {
    std::array<double, kShares.size()> hope;
    hope.fill(1.0);
    const std::uint64_t steps = work_.left() / kRounds;
    for (std::uint64_t round = 1; work_.left() > 0; ++round) {
      std::size_t most = 0;
      double widest = 0;
      for (std::size_t i = 0; i < kShares.size(); ++i) {
        const Trade* lowest = lowest_within(limit_of(kShares[i]));
        if (lowest == nullptr) continue;
        const double open = hope[i] * static_cast<double>(lowest->peak - bound_.least_peak(limit_of(kShares[i])));
        if (open > widest) {
          widest = open;
          most = i;
        }
      }
      if (widest < kCloseEnough * static_cast<double>(r_.peak)) return;
      const std::int64_t limit = limit_of(kShares[most]);
      const Trade start = *lowest_within(limit);
      const Trade polished = with_part(work_, std::max<std::uint64_t>(steps, 1),
                                       [&](Work& part) { return polish(r_, start, limit, round, part); });
      hope[most] *= polished.peak < start.peak ? kHelped : kFailed;
      trades_.push_back(polished);
    }
  }

  const Replays& r_;
  Work& work_;
  TradeBound bound_;
  Front front_;
  Explorer explorer_;
  std::vector<Choice> library_;
  Trades trades_;
};

}  // namespace

Trades auto_trades(const Graph& graph, const Replays& replays, Work& work) {
  return Search(graph, replays, work).run();
}

}  // namespace lowtide
