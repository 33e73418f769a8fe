#include "trade/open_gaps.h"

#include <algorithm>

#include "base/pareto.h"
#include "trade/polish.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kRounds = 40;  // among which the work is divided
constexpr double kCloseEnough = 1e-4;  // to the bound, as a part of the peak
constexpr double kHelped = 0.9;        // how much is hoped for from another round
constexpr double kFailed = 0.4;

}  // namespace

std::int64_t cost_of(double share, const Reruns& reruns) {
  return static_cast<std::int64_t>(share * static_cast<double>(reruns.total_cost));
}

void polish_where_open(const TradeBound& bound, const Reruns& reruns, Trades& trades, Work& work) {
  const auto peak_at = [&](double share) {
    const Trade* lowest = lowest_within(trades, cost_of(share, reruns));
    return lowest == nullptr ? reruns.peak : lowest->peak;
  };
  std::array<double, kCostShares.size()> hope;
  hope.fill(1.0);
  const std::uint64_t steps = std::max<std::uint64_t>(work.left() / (kRounds + kRounds / 4), 1);
  for (std::uint64_t round = 1; round <= kRounds && work.left() > 0; ++round) {
    for (const Trade& trade : trades) work.found(trade.cost, trade.peak);
    std::size_t most = 0;
    double widest = 0;
    for (std::size_t i = 0; i < kCostShares.size(); ++i) {
      const std::int64_t gap = peak_at(kCostShares[i]) - bound.least_peak(cost_of(kCostShares[i], reruns));
      const double open = hope[i] * static_cast<double>(gap);
      if (open > widest) {
        widest = open;
        most = i;
      }
    }
    if (widest < kCloseEnough * static_cast<double>(reruns.peak)) return;
    const double share = kCostShares[most];
    const std::int64_t before = peak_at(share);
    with_part(work, steps, [&](Work& part) {
      polish(reruns, trades, cost_of(share, reruns), round, part);
      return Done{};
    });
    hope[most] *= peak_at(share) < before ? kHelped : kFailed;
  }
}

}  // namespace lowtide
