#include "trade/stages.h"

#include <algorithm>
#include <utility>

namespace lowtide {
namespace {

std::vector<Position> first_makers(const Reruns& r) {
  std::vector<Position> made(r.num_items());
  for (Position p = 0; p < r.num_ops(); ++p) {
    for (const Item item : r.makes[p]) made[item] = p;
  }
  return made;
}

}  // namespace

std::vector<Position> last_early_uses(const Reruns& reruns) {
  std::vector<Position> last(reruns.num_items());
  for (Position p = 0; p < reruns.turn; ++p) {
    for (const Item item : reruns.makes[p]) last[item] = p;
    for (const Item item : reruns.takes[p]) last[item] = p;
  }
  return last;
}

std::size_t Stages::of(Position early) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(bounds, early) - bounds.begin()) - 1;
}

std::vector<Position> narrow_places(const Reruns& reruns, Spacing spacing) {
  const auto [least_ops, around] = spacing;
  const std::vector<Position> made = first_makers(reruns);
  const std::vector<Position> last = last_early_uses(reruns);
  std::vector<int> change(reruns.turn + 1);
  std::vector<bool> counts(reruns.turn);
  for (const Item item : reruns.candidates) {
    counts[made[item]] = counts[last[item]] = true;
    ++change[made[item] + 1];
    --change[last[item] + 1];
  }
  std::vector<Position> places;  // of the ops that count, and how many candidates cross right before each
  std::vector<int> crossing;
  int now = 0;
  for (Position p = 0; p < reruns.turn; ++p) {
    now += change[p];
    if (!counts[p]) continue;
    places.push_back(p);
    crossing.push_back(now);
  }
  std::vector<Position> narrow = {0};
  std::size_t before = 0;
  for (std::size_t i = least_ops; i + least_ops <= places.size(); ++i) {
    if (i - before < least_ops) continue;
    const auto from = crossing.begin() + static_cast<std::ptrdiff_t>(i > around ? i - around : 1);
    const auto to = crossing.begin() + static_cast<std::ptrdiff_t>(std::min(i + around, places.size()));
    if (crossing[i] > *std::min_element(from, to)) continue;
    narrow.push_back(places[i]);
    before = i;
  }
  narrow.push_back(reruns.turn);
  return narrow;
}

Stages stages_between(const Reruns& reruns, std::vector<Position> bounds) {
  const Reruns& r = reruns;
  Stages stages;
  stages.bounds = std::move(bounds);
  stages.made = first_makers(r);
  stages.early_until = last_early_uses(r);
  const std::size_t count = stages.bounds.size() - 1;
  stages.comes_at.assign(count, static_cast<Position>(r.num_ops()));
  std::vector<bool> is_candidate(r.num_items());
  for (const Item item : r.candidates) is_candidate[item] = true;
  std::size_t reached = count;
  for (Position p = r.turn; p < r.num_ops(); ++p) {
    for (const Item item : r.takes[p]) {
      if (!is_candidate[item]) continue;
      for (const std::size_t stage = stages.of(stages.early_until[item]); reached > stage;) {
        stages.comes_at[--reached] = p;
      }
    }
  }
  std::vector<Unit> units;
  for (Unit unit = 0; unit < r.num_units(); ++unit) {
    if (r.repeatable[unit]) units.push_back(unit);
  }
  std::ranges::stable_sort(units, {}, [&](Unit unit) { return r.members[unit].back(); });
  std::vector<std::pair<std::size_t, Unit>> by_stage;
  for (const Unit unit : units) by_stage.emplace_back(stages.of(r.members[unit].back()), unit);
  stages.units = Lists<Unit>::group(count, by_stage);
  return stages;
}

Stages find_stages(const Reruns& reruns, Spacing spacing, std::size_t most) {
  const std::vector<Position> places = narrow_places(reruns, spacing);
  const std::size_t count = std::min(most, places.size() - 1);
  std::vector<Position> bounds;
  for (std::size_t i = 0; i <= count; ++i) bounds.push_back(places[i * (places.size() - 1) / count]);
  return stages_between(reruns, std::move(bounds));
}

}  // namespace lowtide
