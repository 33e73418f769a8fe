#include "search/local_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <utility>

namespace lowtide {
namespace {

// A small generator of our own, so that plans do not depend on whose library this is built with.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : state_(seed * 7919 + 88172645463325252ULL) {}

  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }
  std::size_t below(std::size_t count) { return next() % count; }
  bool one_in(std::size_t count) { return below(count) == 0; }
  double share() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace

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

void keep_within(Explorer& explorer, Choice choice, std::int64_t peak) {
  const Replays& r = explorer.replays();
  std::vector<Item> dropped;
  for (const Item item : r.candidates) {
    if (choice[item] != Fate::stays) dropped.push_back(item);
  }
  std::ranges::stable_sort(dropped, std::ranges::greater{}, [&](Item item) { return r.unit_cost[r.made_by[item]]; });
  for (const Item item : dropped) {
    const Fate fate = std::exchange(choice[item], Fate::stays);
    const std::optional<Outcome> outcome = explorer.explore(choice);
    if (!outcome) return;
    if (outcome->peak > peak) choice[item] = fate;
  }
}

namespace {

class Annealing {
 public:
  Annealing(Explorer& explorer, std::span<const Choice> library, std::int64_t limit, std::uint64_t seed)
      : explorer_(explorer), r_(explorer.replays()), library_(library), limit_(limit), chance_(seed) {
    find_neighbours();
    find_likes();
  }

  void run(Choice choice, std::size_t tries) {
    const std::size_t count = r_.candidates.size();
    if (count == 0) return;
    std::optional<Outcome> first = explorer_.explore(choice);
    if (!first) return;
    std::int64_t lowest = first->peak;
    std::int64_t target = lower_than(lowest);
    first = explorer_.explore(choice, target);
    if (!first) return;
    double energy = energy_of(*first);
    for (std::size_t i = 0; i < tries; ++i) {
      const double heat = kHot * std::pow(kCold / kHot, static_cast<double>(i) / static_cast<double>(tries));
      changed_.clear();
      change(choice);
      if (changed_.empty()) continue;
      Choice mended = choice;
      const std::optional<Outcome> outcome = explorer_.explore(mended, target);
      if (!outcome) return;
      const double next = energy_of(*outcome);
      if (next > energy && chance_.share() >= std::exp((energy - next) / heat)) {
        undo(choice);
        continue;
      }
      energy = next;
      choice = std::move(mended);
      if (outcome->cost > limit_) continue;
      lowest = std::min(lowest, outcome->peak);
      if (outcome->peak <= target) {
        target = lower_than(lowest);
        const std::optional<Outcome> again = explorer_.explore(choice, target);
        if (!again) return;
        energy = energy_of(*again);
      }
    }
  }

 private:
  static constexpr double kHot = 0.08;
  static constexpr double kCold = 0.002;

  static std::int64_t lower_than(std::int64_t peak) { return peak - peak / 125; }

  double energy_of(const Outcome& outcome) const {
    const auto total = static_cast<double>(r_.total_cost);
    const auto over = static_cast<double>(std::max<std::int64_t>(outcome.cost - limit_, 0));
    return static_cast<double>(outcome.excess) / static_cast<double>(r_.peak) + 1000.0 * over / total +
           static_cast<double>(outcome.cost) / total;
  }

  // By item: other candidates at the units that make or need it.
  void find_neighbours() {
    std::vector<bool> is_candidate(r_.num_items());
    for (const Item item : r_.candidates) is_candidate[item] = true;
    std::vector<std::pair<std::size_t, Item>> pairs;
    std::vector<Item> around;
    for (Unit unit = 0; unit < r_.num_units(); ++unit) {
      if (!r_.repeatable[unit]) continue;
      around.clear();
      for (const Item item : r_.needs[unit]) around.push_back(item);
      for (const Item item : r_.gives[unit]) around.push_back(item);
      std::erase_if(around, [&](Item item) { return !is_candidate[item]; });
      for (const Item a : around) {
        for (const Item b : around) {
          if (a != b) pairs.emplace_back(a, b);
        }
      }
    }
    neighbours_ = Lists<Item>::group(r_.num_items(), pairs);
  }

  // Candidates that begin a like stretch: the sizes and costs of the next few are the same.
  void find_likes() {
    constexpr std::size_t kAlike = 4;
    std::map<std::vector<std::int64_t>, std::size_t> known;
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t i = 0; i < r_.candidates.size(); ++i) {
      std::vector<std::int64_t> signature;
      for (std::size_t j = i; j < std::min(i + kAlike, r_.candidates.size()); ++j) {
        signature.push_back(r_.size[r_.candidates[j]]);
        signature.push_back(r_.unit_cost[r_.made_by[r_.candidates[j]]]);
      }
      like_.push_back(known.try_emplace(std::move(signature), known.size()).first->second);
      pairs.emplace_back(like_.back(), i);
    }
    alike_ = Lists<std::size_t>::group(known.size(), pairs);
  }

  void set(Choice& choice, Item item, Fate fate) {
    if (choice[item] == fate) return;
    changed_.emplace_back(item, choice[item]);
    choice[item] = fate;
  }

  void undo(Choice& choice) const {
    for (std::size_t i = changed_.size(); i-- > 0;) choice[changed_[i].first] = changed_[i].second;
  }

  Fate other(Fate fate) {
    if (fate == Fate::stays) return chance_.one_in(8) ? Fate::dropped_always : Fate::dropped;
    if (!chance_.one_in(6)) return Fate::stays;
    return fate == Fate::dropped ? Fate::dropped_always : Fate::dropped;
  }

  void change(Choice& choice) {
    const std::vector<Item>& candidates = r_.candidates;
    const std::size_t at = chance_.below(candidates.size());
    const Item item = candidates[at];
    const std::size_t kind = chance_.below(12);
    if (kind < 4) {
      set(choice, item, other(choice[item]));
    } else if (kind < 6) {
      swap_with_any(choice, item);
    } else if (kind < 8) {
      set(choice, item, other(choice[item]));
      if (const std::span<const Item> near = neighbours_[item]; !near.empty()) {
        const Item second = near[chance_.below(near.size())];
        set(choice, second, other(choice[second]));
      }
    } else if (kind < 10) {
      const std::size_t longest = chance_.one_in(3) ? std::max<std::size_t>(13, candidates.size() / 6) : 12;
      const std::size_t end = std::min(candidates.size(), at + 1 + chance_.below(longest));
      const Choice& pattern = library_[chance_.below(library_.size())];
      for (std::size_t i = at; i < end; ++i) set(choice, candidates[i], pattern[candidates[i]]);
    } else {
      copy_or_swap_like(choice, at);
    }
  }

  void swap_with_any(Choice& choice, Item item) {
    for (int tries = 0; tries < 8; ++tries) {
      const Item second = r_.candidates[chance_.below(r_.candidates.size())];
      if ((choice[second] == Fate::stays) == (choice[item] == Fate::stays)) continue;
      const Fate fate = choice[item];
      set(choice, item, choice[second]);
      set(choice, second, fate);
      return;
    }
  }

  void copy_or_swap_like(Choice& choice, std::size_t at) {
    const std::vector<Item>& candidates = r_.candidates;
    const std::span<const std::size_t> alike = alike_[like_[at]];
    const std::size_t from = alike[chance_.below(alike.size())];
    if (from == at) return set(choice, candidates[at], other(choice[candidates[at]]));
    const bool swap = chance_.one_in(2);
    const std::size_t apart = from > at ? from - at : at - from;
    const std::size_t length = std::min<std::size_t>(1 + chance_.below(40), swap ? apart : candidates.size());
    for (std::size_t i = 0; i < length && std::max(at, from) + i < candidates.size(); ++i) {
      if (like_[at + i] != like_[from + i]) return;
      const Item to = candidates[at + i];
      const Item source = candidates[from + i];
      const Fate fate = choice[to];
      set(choice, to, choice[source]);
      if (swap) set(choice, source, fate);
    }
  }

  Explorer& explorer_;
  const Replays& r_;
  std::span<const Choice> library_;
  std::int64_t limit_;
  Chance chance_;
  Lists<Item> neighbours_;         // by item
  std::vector<std::size_t> like_;  // by candidate: its kind
  Lists<std::size_t> alike_;       // by kind: the candidates
  std::vector<std::pair<Item, Fate>> changed_;
};

}  // namespace

void anneal(Explorer& explorer, std::span<const Choice> library, Choice choice, std::int64_t limit, std::size_t tries,
            std::uint64_t seed) {
  Annealing(explorer, library, limit, seed).run(std::move(choice), tries);
}

}  // namespace lowtide
