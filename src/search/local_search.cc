#include "search/local_search.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace lowtide {

void drop_towards(Explorer& explorer, Choice choice, std::int64_t target, std::int64_t limit) {
  std::optional<Outcome> now = explorer.explore(choice, target);
  if (!now) return;
  struct Drop {
    double gain;
    Item item;
    std::size_t round;  // in which the gain was found
    bool operator<(const Drop& other) const { return std::pair(gain, other.item) < std::pair(other.gain, item); }
  };
  constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  std::priority_queue<Drop> drops;
  for (const Item item : explorer.replays().candidates) {
    if (choice[item] == Fate::stays) drops.push({std::numeric_limits<double>::max(), item, kNever});
  }
  // Gains mostly shrink as more is dropped: one that is found again and still the highest is the highest.
  for (std::size_t round = 0; now->excess > 0 && !drops.empty();) {
    const Drop best = drops.top();
    drops.pop();
    if (best.round == round && best.gain <= 0) return;
    Choice next = choice;
    next[best.item] = Fate::dropped;
    const std::optional<Outcome> outcome = explorer.explore(next, target);
    if (!outcome) return;
    if (outcome->cost > limit) continue;
    if (best.round == round) {
      choice = std::move(next);
      now = outcome;
      ++round;
      continue;
    }
    const auto less = static_cast<double>(now->excess - outcome->excess);
    const auto more = static_cast<double>(std::max<std::int64_t>(outcome->cost - now->cost, 1));
    drops.push({less <= 0 ? less : less / more, best.item, round});
  }
}

}  // namespace lowtide
