#include "trade/chen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "trade/repeated_units.h"
#include "trade/stages.h"

namespace lowtide {
namespace {

constexpr std::array kRoots = {0.0, 0.25, 0.35, 0.5, 0.7,
                               1.0, 1.4,  2.0,  2.8, 4.0};  // numbers of groups, in square roots
constexpr int kChenBudgets = 16;

class Checkpoints {
 public:
  Checkpoints(const Reruns& reruns, Spacing spacing) : r_(reruns), places_(narrow_places(reruns, spacing)) {
    const Stages stages = stages_between(r_, places_);
    held_.assign(stages.count(), 0);
    for (Item item = 0; item < r_.num_items(); ++item) {
      if (stages.is_made_early(item) && r_.used_late[item]) held_[stages.of(stages.made[item])] += r_.size[item];
    }
    first_late_use_.assign(r_.num_items(), static_cast<Position>(r_.num_ops()));
    for (auto p = static_cast<Position>(r_.num_ops()); p-- > r_.turn;) {
      for (const Item item : r_.takes[p]) first_late_use_[item] = p;
    }
  }

  std::set<std::vector<Position>> all_cuts() const {
    std::set<std::vector<Position>> cuts;
    const auto stages = static_cast<double>(held_.size());
    for (const double root : kRoots) {
      const auto groups = static_cast<std::size_t>(std::lround(std::clamp(root * std::sqrt(stages), 1.0, stages)));
      cuts.insert(equal_groups(groups));
    }
    std::int64_t total = 0;
    for (const std::int64_t bytes : held_) total += bytes;
    for (int i = 1; i <= kChenBudgets; ++i) cuts.insert(groups_of_bytes(total * i / kChenBudgets / 2));
    return cuts;
  }

  Runs runs_of(const std::vector<Position>& cuts) const {
    const Stages groups = stages_between(r_, cuts);
    std::vector<UnitRepeat> repeats;
    for (std::size_t group = 0; group + 1 < groups.count(); ++group) {
      std::vector<Unit> dropped;
      auto slot = static_cast<Position>(r_.num_ops());
      for (const Unit unit : groups.units[group]) {
        const auto crosses = [&](Item item) { return groups.early_until[item] >= cuts[group + 1]; };
        if (std::ranges::any_of(r_.gives[unit], crosses)) continue;
        dropped.push_back(unit);
        for (const Item item : r_.gives[unit]) slot = std::min(slot, first_late_use_[item]);
      }
      for (const Unit unit : dropped) repeats.push_back({slot, unit});
    }
    return with_repeats(r_, repeats);
  }

 private:
  std::vector<Position> equal_groups(std::size_t groups) const {
    std::vector<Position> cuts;
    for (std::size_t i = 0; i <= groups; ++i) cuts.push_back(places_[i * held_.size() / groups]);
    return cuts;
  }

  std::vector<Position> groups_of_bytes(std::int64_t most) const {
    std::vector<Position> cuts = {0};
    std::int64_t bytes = 0;
    for (std::size_t stage = 0; stage + 1 < held_.size(); ++stage) {
      bytes += held_[stage];
      if (bytes <= most) continue;
      cuts.push_back(places_[stage + 1]);
      bytes = 0;
    }
    cuts.push_back(r_.turn);
    return cuts;
  }

  const Reruns& r_;
  std::vector<Position> places_;
  std::vector<std::int64_t> held_;        // by stage: bytes that it makes for late ops
  std::vector<Position> first_late_use_;  // by item
};

}  // namespace

Trades chen_trades(const TradeBound&, const Reruns& reruns, Work& work) {
  Collected collected(reruns, work);
  for (const Spacing spacing : {kCoarse, kFine}) {
    const Checkpoints checkpoints(reruns, spacing);
    for (const std::vector<Position>& cuts : checkpoints.all_cuts()) {
      if (!collected.add(checkpoints.runs_of(cuts))) return std::move(collected).best();
    }
  }
  return std::move(collected).best();
}

}  // namespace lowtide
