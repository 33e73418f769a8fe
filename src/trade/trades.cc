#include "trade/trades.h"

#include <utility>

#include "base/pareto.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kTradeStepsARun = 32;

}  // namespace

Trades best_of(Trades trades) {
  Trades best;
  for (Trade& trade : trades) {
    if (!is_reached(best, trade.cost, trade.peak)) add_point(best, std::move(trade));
  }
  return best;
}

bool Collected::add(const Runs& runs) {
  if (!work_->spend(kTradeStepsARun * runs.size())) return false;
  Runs needed = needed_runs(*reruns_, runs);
  const Outcome outcome = Evaluation(*reruns_).of(needed);
  work_->found(outcome.cost, outcome.peak);
  trades_.push_back({outcome.cost, outcome.peak, std::move(needed)});
  return true;
}

}  // namespace lowtide
