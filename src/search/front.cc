#include "search/front.h"

#include <algorithm>

namespace lowtide {
namespace {

constexpr std::uint64_t kStepsARun = 16;

}  // namespace

bool Front::offer(std::int64_t cost, std::int64_t peak, const Choice& choice) {
  const auto place = std::ranges::lower_bound(points_, cost, {}, &FrontPoint::cost);
  const bool beaten_before = place != points_.begin() && std::prev(place)->peak <= peak;
  const bool beaten_here = place != points_.end() && place->cost == cost && place->peak <= peak;
  if (beaten_before || beaten_here) return false;
  const auto beaten = std::find_if(place, points_.end(), [&](const FrontPoint& point) { return point.peak < peak; });
  points_.insert(points_.erase(place, beaten), {cost, peak, choice});
  return true;
}

const FrontPoint* Front::within_cost(std::int64_t cost) const {
  const auto end = std::ranges::upper_bound(points_, cost, {}, &FrontPoint::cost);
  return end == points_.begin() ? nullptr : &*std::prev(end);
}

const FrontPoint* Front::within_peak(std::int64_t peak) const {
  const auto first = std::ranges::find_if(points_, [&](const FrontPoint& point) { return point.peak <= peak; });
  return first == points_.end() ? nullptr : &*first;
}

std::optional<Outcome> Explorer::explore(Choice& choice, std::int64_t target) {
  const Runs& runs = dropping_.runs_of(choice);
  if (!work_->spend(kStepsARun * runs.size())) return std::nullopt;
  const Outcome outcome = evaluation_.of(runs, target);
  front_->offer(outcome.cost, outcome.peak, choice);
  return outcome;
}

}  // namespace lowtide
