#include "trade/part_evaluation.h"

#include <algorithm>

#include "trade/stages.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kStepsToFollowAnOp = 40;

}  // namespace

PartEvaluation::PartEvaluation(const Reruns& reruns)
    : reruns_(&reruns),
      dropping_(reruns),
      live_(reruns),
      made_(reruns.num_items()),
      last_early_(last_early_uses(reruns)),
      first_late_(reruns.num_items(), static_cast<Position>(reruns.num_ops())),
      last_(reruns.num_items()) {
  const Reruns& r = reruns;
  for (Position p = 0; p < r.num_ops(); ++p) {
    for (const Item item : r.makes[p]) made_[item] = last_[item] = p;
    for (const Item item : r.takes[p]) last_[item] = p;
  }
  for (auto p = static_cast<Position>(r.num_ops()); p-- > r.turn;) {
    for (const Item item : r.takes[p]) first_late_[item] = p;
  }
  for (Item item = 0; item < r.num_items(); ++item) {
    if (r.kept[item]) last_[item] = static_cast<Position>(r.num_ops());
  }
}

std::uint64_t PartEvaluation::steps_for(const EvaluatedPart& part) const {
  return kStepsToFollowAnOp * (part.early_end - part.early_begin + part.until - part.from) + reruns_->num_items();
}

Outcome PartEvaluation::of(const EvaluatedPart& part, Choice& choice) {
  const Runs& runs = dropping_.late_runs_of(choice, part.from, part.until);
  Outcome outcome;
  live_.begin([until = part.until, made = made_.data(), last = last_.data()](Item item) {
    return (made[item] < until) & (last[item] >= until);
  });
  Position next = part.until;
  for (std::size_t i = runs.size(); i-- > 0;) {
    const auto [op, again] = runs[i];
    if (again) {
      if (!live_.wants(op)) continue;
      outcome.cost += reruns_->cost[op];
    } else {
      next = op;
    }
    const std::int64_t held = live_.pass(op);
    if (part.late_begin <= next && next < part.late_end) outcome.peak = std::max(outcome.peak, held);
  }
  // Between the two, nothing runs again: what is touched there is needed.
  live_.begin([end = part.early_end, from = part.from, made = made_.data(), last_early = last_early_.data(),
               first_late = first_late_.data(), this](Item item) {
    return (made[item] < end) & ((last_early[item] >= end) | (first_late[item] < from) | live_[item]);
  });
  for (Position p = part.early_end; p-- > part.early_begin;) {
    outcome.peak = std::max(outcome.peak, live_.pass(p));
  }
  return outcome;
}

}  // namespace lowtide
