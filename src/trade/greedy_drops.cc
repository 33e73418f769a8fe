#include "trade/greedy_drops.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "trade/drops.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kTargets = 32;
constexpr std::uint64_t kDropStepsARun = 16;

class Greedy {
 public:
  Greedy(const Reruns& reruns, std::int64_t target, Work& work)
      : r_(reruns), target_(target), work_(work), dropping_(reruns), evaluation_(reruns) {}

  // The choice where it ends.
  Choice run() {
    Choice choice = keep_all(r_);
    std::optional<Outcome> now = follow(choice);
    struct Drop {
      double gain;
      Item item;
      std::size_t round;  // in which the gain was found
      bool operator<(const Drop& other) const { return std::pair(gain, other.item) < std::pair(other.gain, item); }
    };
    constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
    std::priority_queue<Drop> drops;
    for (const Item item : r_.candidates) {
      if (choice[item] == Fate::stays) drops.push({std::numeric_limits<double>::max(), item, kNever});
    }
    // Gains mostly shrink as more is dropped: one that is found again and still the highest is the highest.
    for (std::size_t round = 0; now && now->excess > 0 && !drops.empty();) {
      const Drop best = drops.top();
      drops.pop();
      if (best.round == round && best.gain <= 0) break;
      Choice next = choice;
      next[best.item] = Fate::dropped;
      const std::optional<Outcome> outcome = follow(next);
      if (!outcome) break;
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
    return choice;
  }

 private:
  // Nothing if the work is at its end.
  std::optional<Outcome> follow(Choice& choice) {
    const Runs& runs = dropping_.runs_of(choice);
    if (!work_.spend(kDropStepsARun * runs.size())) return std::nullopt;
    return evaluation_.of(runs, target_);
  }

  const Reruns& r_;
  std::int64_t target_;
  Work& work_;
  Dropping dropping_;
  Evaluation evaluation_;
};

}  // namespace

std::uint64_t least_greedy_steps(const Reruns& reruns) {
  return kTargets * kDropStepsARun * reruns.num_ops() * reruns.candidates.size();
}

Trades greedy_trades(const TradeBound&, const Reruns& reruns, Work& work) {
  Dropping dropping(reruns);
  Collected collected(reruns, work);
  for (std::uint64_t i = 1; i <= kTargets; ++i) {
    const std::int64_t target =
        reruns.peak - static_cast<std::int64_t>(i) * (reruns.peak / static_cast<std::int64_t>(kTargets));
    Choice choice = with_part(work, work.left() / (kTargets + 2 - i),
                              [&](Work& part) { return Greedy(reruns, target, part).run(); });
    if (!collected.add(dropping.runs_of(choice))) break;
  }
  return std::move(collected).best();
}

}  // namespace lowtide
