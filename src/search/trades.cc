#include "search/trades.h"

#include <algorithm>

namespace lowtide {
namespace {

constexpr std::uint64_t kStepsARun = 32;

}  // namespace

Trades best_of(Trades trades) {
  std::ranges::stable_sort(
      trades, [](const Trade& a, const Trade& b) { return std::pair(a.cost, a.peak) < std::pair(b.cost, b.peak); });
  Trades best;
  for (Trade& trade : trades) {
    if (best.empty() || trade.peak < best.back().peak) best.push_back(std::move(trade));
  }
  return best;
}

bool Collected::add(const Runs& runs) {
  if (!work_->spend(kStepsARun * runs.size())) return false;
  Runs needed = needed_runs(*replays_, runs);
  const Outcome outcome = Evaluation(*replays_).of(needed);
  trades_.push_back({outcome.cost, outcome.peak, std::move(needed)});
  return true;
}

}  // namespace lowtide
