#include "trade/rotor.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "trade/repeated_units.h"
#include "trade/stages.h"

namespace lowtide {
namespace {

constexpr std::size_t kStages = 120;  // at most
constexpr std::size_t kSlots = 400;
constexpr std::size_t kLimits = 32;
constexpr std::size_t kStepsAWay = 2;  // and slot
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max() / 4;

// The stages in the terms of the program: costs, and bytes.
struct Chain {
  Chain(const Reruns& reruns, const Stages& found) : r(reruns), stages(found), count(found.count()) {
    cost.assign(count + 1, 0);
    for (std::size_t s = 0; s < count; ++s) {
      cost[s + 1] = cost[s];
      for (const Unit unit : stages.units[s]) cost[s + 1] += r.unit_cost[unit];
    }
    find_held();
    find_early();
    find_late();
  }

  const Reruns& r;
  const Stages& stages;
  std::size_t count;
  std::vector<std::int64_t> cost;        // by stage: of all before it
  std::vector<std::int64_t> held;        // by stage: what it makes for late ops, or crosses its end
  std::vector<std::int64_t> crossing;    // by s and k: of what s .. k-1 make, what crosses into k
  std::vector<std::int64_t> early;       // by s and k: the most of what s .. k make that is in use while k runs early
  std::vector<std::int64_t> early_held;  // by stage: the most that it has made while it runs early and holds all
  std::vector<std::int64_t> late;        // by stage: the most while it runs late, above what those before it hold
  std::vector<std::int64_t> late_begin;  // by stage: bytes of late items when its late ops begin

  std::size_t at(std::size_t s, std::size_t k) const { return s * (count + 1) + k; }

 private:
  bool is_droppable(Item item) const { return r.repeatable[r.made_by[item]]; }

  void find_held() {
    held.assign(count, 0);
    crossing.assign((count + 1) * (count + 1), 0);
    for (Item item = 0; item < r.num_items(); ++item) {
      if (!stages.is_made_early(item)) continue;
      const std::size_t made = stages.of(stages.made[item]);
      const std::size_t last = stages.of(stages.early_until[item]);
      if (is_droppable(item) && (r.used_late[item] || last > made)) held[made] += r.size[item];
      for (std::size_t s = 0; s <= made; ++s) {
        for (std::size_t k = made + 1; k <= last; ++k) crossing[at(s, k)] += r.size[item];
      }
    }
  }

  void find_early() {
    early.assign((count + 1) * (count + 1), 0);
    early_held.assign(count, 0);
    for (std::size_t s = 0; s < count; ++s) {
      const Position begin = stages.bounds[s];
      std::int64_t in_use = 0;
      std::int64_t holding = 0;  // the same, but nothing ends that is wanted late
      for (Position p = begin; p < r.turn; ++p) {
        for (const Item item : r.makes[p]) {
          in_use += r.size[item];
          holding += r.size[item];
        }
        std::int64_t& most = early[at(s, stages.of(p))];
        most = std::max(most, in_use + r.workspace[p]);
        if (p < stages.bounds[s + 1]) early_held[s] = std::max(early_held[s], holding + r.workspace[p]);
        const auto end = [&](Item item) {
          if (stages.made[item] < begin || stages.early_until[item] != p) return;
          in_use -= r.size[item];
          if (!r.used_late[item]) holding -= r.size[item];
        };
        for (const Item item : r.makes[p]) end(item);
        for (const Item item : r.takes[p]) end(item);
      }
    }
  }

  void find_late() {
    std::vector<std::int64_t> bytes;
    Evaluation(r).of(each_once(r), bytes);
    std::vector<std::int64_t> held_before(count + 1, 0);
    std::int64_t lasting = 0;
    for (Item item = 0; item < r.num_items(); ++item) {
      if (!stages.is_made_early(item) || !r.used_late[item]) continue;
      if (is_droppable(item)) held_before[stages.of(stages.made[item]) + 1] += r.size[item];
      if (!is_droppable(item)) lasting += r.size[item];
    }
    for (std::size_t s = 0; s < count; ++s) held_before[s + 1] += held_before[s];
    late.assign(count, 0);
    late_begin.assign(count, 0);
    std::vector<Position> last_use(r.num_items());
    for (Position p = r.turn; p < r.num_ops(); ++p) {
      for (const Item item : r.takes[p]) last_use[item] = p;
    }
    std::int64_t made_late = 0;
    std::size_t reached = count;  // the stage that has come
    for (Position p = r.turn; p < r.num_ops(); ++p) {
      while (reached > 0 && stages.comes_at[reached - 1] <= p) late_begin[--reached] = made_late;
      for (const Item item : r.makes[p]) made_late += last_use[item] > p || r.kept[item] ? r.size[item] : 0;
      for (const Item item : r.takes[p]) {
        if (!stages.is_made_early(item) && last_use[item] == p && !r.kept[item]) made_late -= r.size[item];
      }
      const std::size_t stage = std::min(reached, count - 1);
      late[stage] = std::max(late[stage], bytes[p] - held_before[stage] - lasting);
    }
  }
};

class ChainProgram {
 public:
  ChainProgram(const Chain& chain, std::int64_t most_bytes)
      : c_(chain),
        n_(chain.count),
        slot_bytes_(std::max<std::int64_t>(
            1, (most_bytes + static_cast<std::int64_t>(kSlots) - 1) / static_cast<std::int64_t>(kSlots))),
        least_(n_ * n_ * (kSlots + 1), kNever),
        way_(least_.size(), 0) {}

  // False if the work does not suffice.
  bool solve(Work& work) {
    const std::size_t ways = n_ * (n_ + 1) * (n_ + 2) / 6;  // of all parts of the chain together
    if (!work.spend(kStepsAWay * ways * kSlots)) return false;
    for (std::size_t length = 1; length <= n_; ++length) {
      for (std::size_t s = 0; s + length <= n_; ++s) solve(s, s + length - 1);
    }
    return true;
  }

  bool is_possible(std::size_t slots) const { return least_[at(0, n_ - 1, slots)] < kNever; }

  // What runs again with so many slots.
  std::vector<UnitRepeat> repeats_with(std::size_t slots) const {
    std::vector<UnitRepeat> repeats;
    struct Part {
      std::size_t first, last, slots;
      bool again;
    };
    std::vector<Part> open = {{0, n_ - 1, slots, false}};
    while (!open.empty()) {
      const auto [s, t, m, again] = open.back();
      open.pop_back();
      const std::size_t k = way_[at(s, t, m)];
      for (std::size_t stage = s; again && stage < std::max(k, s + 1); ++stage) {
        for (const Unit unit : c_.stages.units[stage]) repeats.push_back({c_.stages.comes_at[t], unit});
      }
      if (s == t) continue;
      if (k == 0) {
        open.push_back({s + 1, t, m - slots_of(c_.held[s]), again});
      } else {
        open.push_back({s, k - 1, m, true});
        open.push_back({k, t, m - slots_of(c_.crossing[c_.at(s, k)]), again});
      }
    }
    return repeats;
  }

 private:
  std::size_t at(std::size_t s, std::size_t t, std::size_t m) const { return (s * n_ + t) * (kSlots + 1) + m; }

  std::size_t slots_of(std::int64_t bytes) const {
    return static_cast<std::size_t>((std::max<std::int64_t>(bytes, 0) + slot_bytes_ - 1) / slot_bytes_);
  }

  void offer(std::size_t to, std::int64_t cost, std::size_t way) {
    if (cost >= least_[to]) return;
    least_[to] = cost;
    way_[to] = static_cast<std::uint16_t>(way);
  }

  void solve(std::size_t s, std::size_t t) {
    const std::int64_t waiting = c_.late_begin[t];
    const std::size_t for_all = slots_of(std::max(waiting + c_.early_held[s], c_.late[s]));
    const std::size_t held = slots_of(c_.held[s]);
    for (std::size_t m = for_all; m <= kSlots; ++m) {
      const std::int64_t own = c_.cost[s + 1] - c_.cost[s];
      if (s == t) offer(at(s, t, m), own, 0);
      if (s < t && m >= held) offer(at(s, t, m), own + least_[at(s + 1, t, m - held)], 0);
    }
    std::int64_t most = 0;
    for (std::size_t k = s + 1; k <= t; ++k) {
      most = std::max(most, c_.early[c_.at(s, k - 1)]);
      const std::size_t crossing = slots_of(c_.crossing[c_.at(s, k)]);
      const std::int64_t own = c_.cost[k] - c_.cost[s];
      for (std::size_t m = std::max(slots_of(waiting + most), crossing); m <= kSlots; ++m) {
        offer(at(s, t, m), own + least_[at(k, t, m - crossing)] + least_[at(s, k - 1, m)], k);
      }
    }
  }

  const Chain& c_;
  std::size_t n_;
  std::int64_t slot_bytes_;
  std::vector<std::int64_t> least_;
  std::vector<std::uint16_t> way_;  // 0: all; k: part, with what crosses into k
};

// False if the work is at its end.
bool add_trades(const Reruns& reruns, Spacing spacing, Work& work, Collected& collected) {
  const Stages stages = find_stages(reruns, spacing, kStages);
  const Chain chain(reruns, stages);
  ChainProgram program(chain, reruns.peak + reruns.peak / 4);
  if (!program.solve(work)) return false;
  std::size_t first = 0;
  while (first < kSlots && !program.is_possible(first)) ++first;
  for (std::size_t i = 0; i <= kLimits; ++i) {
    const std::size_t slots = first + (kSlots - first) * i / kLimits;
    if (!program.is_possible(slots)) continue;
    if (!collected.add(with_repeats(reruns, program.repeats_with(slots)))) return false;
  }
  return true;
}

}  // namespace

Trades rotor_trades(const TradeBound&, const Reruns& reruns, Work& work) {
  Collected collected(reruns, work);
  for (const Spacing spacing : {kCoarse, kFine}) {
    if (!add_trades(reruns, spacing, work, collected)) break;
  }
  return std::move(collected).best();
}

}  // namespace lowtide
