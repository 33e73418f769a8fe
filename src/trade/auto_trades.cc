#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "base/pareto.h"
#include "trade/between.h"
#include "trade/chen.h"
#include "trade/dtr.h"
#include "trade/front.h"
#include "trade/greedy_drops.h"
#include "trade/open_gaps.h"
#include "trade/polish.h"
#include "trade/price_cuts.h"
#include "trade/rotor.h"
#include "trade/segments.h"
#include "trade/trades.h"

namespace lowtide {
namespace {

constexpr Position kCoarsest = 24;
constexpr Position kGrains[] = {4, 8, kCoarsest};  // ops between two boundaries, at least
constexpr std::size_t kFineOps = 4000;             // with more of them, the coarsest grain has to do
constexpr int kLadder = 48;  // peaks for which the segments are asked, from what the order needs down to nothing
constexpr int kHalvings = 5;
constexpr std::size_t kLibrary = 120;  // choices of the trades that the segments may take from
constexpr std::uint64_t kFillings = 2;
constexpr std::uint64_t kRecombinations = 3;

class Search {
 public:
  Search(const TradeBound& bound, const Reruns& reruns, Work& work)
      : bound_(bound),
        r_(reruns),
        work_(work),
        explorer_(reruns, front_, work),
        mixes_(reruns, explorer_, work),
        library_(choices_by_price(reruns, work)) {}

  Trades run() && {
    ask_others();
    for (Choice choice : library_) explorer_.explore(choice);
    ask_segments(library_);
    mixes_.explore(front_);
    take_front();
    for (std::uint64_t seed = 0; seed < kFillings; ++seed) fill_up(r_, trades_, seed, work_);
    // What polishing finds in one place of one trade and in another place of another, the segments put together.
    for (std::uint64_t left = kRecombinations; left > 0; --left) {
      with_part(work_, work_.left() / (left + 1), [&](Work& part) {
        polish_where_open(bound_, r_, trades_, part);
        return Done{};
      });
      ask_segments(some_of_trades());
      mixes_.explore(front_);
      take_front();
    }
    polish_where_open(bound_, r_, trades_, work_);
    for (std::size_t i = kCostShares.size(); i-- > 0;) {
      thin_out(r_, trades_, limit_of(kCostShares[i]), i > 0 ? limit_of(kCostShares[i - 1]) : 0, work_);
    }
    return std::move(trades_);
  }

 private:
  std::int64_t limit_of(double share) const { return cost_of(share, r_); }

  // What others find is a start too, where it takes not too much of the work.
  void ask_others() {
    const auto ask = [&](auto planner, std::uint64_t part) {
      Trades found = with_part(work_, work_.left() / part, [&](Work& work) { return planner(bound_, r_, work); });
      for (Trade& trade : found) {
        if (!is_reached(trades_, trade.cost, trade.peak)) add_point(trades_, std::move(trade));
      }
    };
    ask(chen_trades, 10);
    ask(rotor_trades, 10);
    ask(dtr_trades, 10);
    if (least_greedy_steps(r_) <= work_.left() / 5) ask(greedy_trades, 5);
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
      for (const double share : kCostShares) {
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

  // Adds to the trades what is on the front.
  void take_front() {
    Dropping dropping(r_);
    for (const FrontPoint& point : front_.points()) {
      if (is_reached(trades_, point.cost, point.peak)) continue;
      Choice choice = point.choice;
      add_point(trades_, {point.cost, point.peak, needed_runs(r_, dropping.runs_of(choice))});
    }
  }

  std::vector<Choice> some_of_trades() const {
    std::vector<Choice> choices;
    for (std::size_t i = 0; i < trades_.size(); i += 1 + trades_.size() / kLibrary) {
      choices.push_back(choice_of(r_, trades_[i].runs));
    }
    for (const double share : kCostShares) {
      const Trade* lowest = lowest_within(trades_, limit_of(share));
      if (lowest != nullptr) choices.push_back(choice_of(r_, lowest->runs));
    }
    return choices;
  }

  const TradeBound& bound_;
  const Reruns& r_;
  Work& work_;
  Front front_;
  Explorer explorer_;
  Mixes mixes_;
  std::vector<Choice> library_;
  Trades trades_;
};

}  // namespace

Trades auto_trades(const TradeBound& bound, const Reruns& reruns, Work& work) {
  return Search(bound, reruns, work).run();
}

}  // namespace lowtide
