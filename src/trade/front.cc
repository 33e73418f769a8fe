#include "trade/front.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kFrontStepsARun = 16;

}  // namespace

std::optional<Outcome> Explorer::explore(Choice& choice) {
  const Runs& runs = dropping_.runs_of(choice);
  if (!work_->spend(kFrontStepsARun * runs.size())) return std::nullopt;
  const Outcome outcome = evaluation_.of(runs);
  work_->found(outcome.cost, outcome.peak);
  front_->offer(outcome.cost, outcome.peak, choice);
  return outcome;
}

}  // namespace lowtide
