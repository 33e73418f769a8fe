#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>

#include "search/between.h"
#include "search/chen.h"
#include "search/dtr.h"
#include "search/front.h"
#include "search/greedy_drops.h"
#include "search/pareto.h"
#include "search/polish.h"
#include "search/price_cuts.h"
#include "search/rotor.h"
#include "search/segments.h"
#include "search/trades.h"

namespace lowtide {
namespace {

constexpr Position kCoarsest = 24;
constexpr Position kGrains[] = {4, 8, kCoarsest};  // ops between two boundaries, at least
constexpr std::size_t kFineOps = 4000;             // with more of them, the coarsest grain has to do
constexpr int kLadder = 48;  // peaks for which the segments are asked, from what the order needs down to nothing
// Costs, as shares of the step's, at which more is tried.
constexpr std::array kShares = {0.001,  0.002, 0.003, 0.004, 0.005, 0.0065, 0.008, 0.01,  0.0125, 0.015,
                                0.0175, 0.02,  0.025, 0.03,  0.035, 0.04,   0.045, 0.05,  0.055,  0.065,
                                0.08,   0.09,  0.10,  0.11,  0.125, 0.14,   0.15,  0.165, 0.175,  0.19,
                                0.20,   0.225, 0.25,  0.28,  0.30,  0.33,   0.40,  0.50,  0.70,   1.00};
constexpr int kHalvings = 5;
constexpr std::size_t kLibrary = 120;  // choices of the front that the segments may take from
constexpr std::uint64_t kFillings = 2;
constexpr std::uint64_t kRounds = 40;  // among which the work is divided that is left for polishing
constexpr double kCloseEnough = 1e-4;  // to the bound, as a part of the peak
constexpr double kHelped = 0.9;        // how much is hoped for from another round
constexpr double kFailed = 0.4;

class Search {
 public:
  Search(const TradeBound& bound, const Replays& replays, Work& work)
      : bound_(bound),
        r_(replays),
        work_(work),
        explorer_(replays, front_, work),
        library_(choices_by_price(replays, work)) {}

  Trades run() && {
    ask_others();
    for (Choice choice : library_) explorer_.explore(choice);
    ask_segments(library_);
    explore_between(r_, front_, explorer_);
    ask_segments(some_of_front());
    explore_between(r_, front_, explorer_);
    explore_between(r_, front_, explorer_);
    Dropping dropping(r_);
    for (const FrontPoint& point : front_.points()) {
      Choice choice = point.choice;
      trades_.push_back({point.cost, point.peak, needed_runs(r_, dropping.runs_of(choice))});
    }
    trades_ = best_of(std::move(trades_));
    for (std::uint64_t seed = 0; seed < kFillings; ++seed) fill_up(r_, trades_, seed, work_);
    polish_where_open();
    for (std::size_t i = kShares.size(); i-- > 0;) {
      thin_out(r_, trades_, limit_of(kShares[i]), i > 0 ? limit_of(kShares[i - 1]) : 0, work_);
    }
    return std::move(trades_);
  }

 private:
  std::int64_t limit_of(double share) const {
    return static_cast<std::int64_t>(share * static_cast<double>(r_.total_cost));
  }

  // What others find is a start too, where it takes not too much of the work.
  void ask_others() {
    const auto ask = [&](auto planner, std::uint64_t part) {
      Trades found = with_part(work_, work_.left() / part, [&](Work& work) { return planner(bound_, r_, work); });
      trades_.insert(trades_.end(), std::move_iterator(found.begin()), std::move_iterator(found.end()));
    };
    ask(chen_trades, 10);
    ask(rotor_trades, 10);
    ask(dtr_trades, 5);
    ask(greedy_trades, 5);
  }

  void ask_segments(std::span<const Choice> library) {
    for (const Position least_ops : kGrains) {
      if (least_ops < kCoarsest && r_.num_ops() > kFineOps) continue;
      const SegmentProgram segments(r_, library, least_ops, work_);
      const auto ask = [&](std::int64_t peak) -> std::optional<Outcome> {
        std::optional<Choice> choice = segments.cheapest_within(peak, work_);
        if (!choice) return std::nullopt;
        return explorer_.explore(*choice);
      };
      for (int rung = 0; rung < kLadder; ++rung) ask(r_.peak - r_.peak * rung / kLadder);
      for (const double share : kShares) {
        const FrontPoint* point = lowest_within(front_.points(), limit_of(share));
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

  std::vector<Choice> some_of_front() const {
    const std::vector<FrontPoint>& points = front_.points();
    std::vector<Choice> choices;
    for (std::size_t i = 0; i < points.size(); i += 1 + points.size() / kLibrary) choices.push_back(points[i].choice);
    return choices;
  }

  // Again and again where the distance to the bound is the largest; less where that did not help.
  void polish_where_open() {
    std::array<double, kShares.size()> hope;
    hope.fill(1.0);
    const std::uint64_t steps = std::max<std::uint64_t>(work_.left() / (kRounds + kRounds / 4), 1);
    for (std::uint64_t round = 1; round <= kRounds && work_.left() > 0; ++round) {
      for (const Trade& trade : trades_) work_.found(trade.cost, trade.peak);
      std::size_t most = 0;
      double widest = 0;
      for (std::size_t i = 0; i < kShares.size(); ++i) {
        const double open = hope[i] * static_cast<double>(peak_at(i) - bound_.least_peak(limit_of(kShares[i])));
        if (open > widest) {
          widest = open;
          most = i;
        }
      }
      if (widest < kCloseEnough * static_cast<double>(r_.peak)) return;
      const std::int64_t before = peak_at(most);
      with_part(work_, steps, [&](Work& part) {
        polish(r_, trades_, limit_of(kShares[most]), round, part);
        return Done{};
      });
      hope[most] *= peak_at(most) < before ? kHelped : kFailed;
    }
  }

  std::int64_t peak_at(std::size_t share) const {
    const Trade* lowest = lowest_within(trades_, limit_of(kShares[share]));
    return lowest == nullptr ? r_.peak : lowest->peak;
  }

  const TradeBound& bound_;
  const Replays& r_;
  Work& work_;
  Front front_;
  Explorer explorer_;
  std::vector<Choice> library_;
  Trades trades_;
};

}  // namespace

Trades auto_trades(const TradeBound& bound, const Replays& replays, Work& work) {
  return Search(bound, replays, work).run();
}

}  // namespace lowtide
