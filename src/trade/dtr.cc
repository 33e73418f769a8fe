#include "trade/dtr.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace lowtide {
namespace {

constexpr int kDtrBudgets = 32;
constexpr std::int64_t kMostRepeats = 2;  // times the cost of the step

// What does not depend on the budget.
class Wants {
 public:
  explicit Wants(const Reruns& r) : last_use_(r.num_items()), last_want_(r.num_items()), users_(users_of(r)) {
    for (Position p = 0; p < r.num_ops(); ++p) {
      for (const Item item : r.makes[p]) last_use_[item] = p;
      for (const Item item : r.takes[p]) last_use_[item] = p;
    }
    for (Item item = 0; item < r.num_items(); ++item) {
      if (r.kept[item]) last_use_[item] = static_cast<Position>(r.num_ops());
    }
    last_want_ = last_use_;
    // By their last ops, units that need something come behind those that run again to make it.
    std::vector<Unit> units(r.num_units());
    for (Unit unit = 0; unit < r.num_units(); ++unit) units[unit] = unit;
    std::ranges::sort(units, std::ranges::greater{}, [&](Unit unit) { return r.members[unit].back(); });
    const std::vector<bool> again = run_again(r);
    for (const Unit unit : units) {
      if (!again[unit]) continue;
      Position last = 0;
      for (const Item item : r.gives[unit]) last = std::max(last, last_want_[item]);
      for (const Item item : r.needs[unit]) last_want_[item] = std::max(last_want_[item], last);
    }
    for (Item item = 0; item < r.num_items(); ++item) {
      const Unit unit = r.made_by[item];
      evictable_.push_back(again[unit] && last_want_[item] <= r.until[unit]);
    }
  }

  Position last_use(Item item) const { return last_use_[item]; }    // by a first run
  Position last_want(Item item) const { return last_want_[item]; }  // also to make something else again
  bool evictable(Item item) const { return evictable_[item]; }
  std::span<const Unit> users(Item item) const { return users_[item]; }  // units that can run again and need it

 private:
  // By unit. Not those that others need before they have run to their end: such units can need each other in a circle.
  static std::vector<bool> run_again(const Reruns& r) {
    std::vector<bool> again = r.repeatable;
    for (Unit unit = 0; unit < r.num_units(); ++unit) {
      for (const Item item : r.needs[unit]) {
        const Unit maker = r.made_by[item];
        if (r.members[maker].back() > r.members[unit].back()) again[maker] = false;
      }
    }
    return again;
  }

  static Lists<Unit> users_of(const Reruns& r) {
    std::vector<std::pair<std::size_t, Unit>> pairs;
    for (Unit unit = 0; unit < r.num_units(); ++unit) {
      if (!r.repeatable[unit]) continue;
      for (const Item item : r.needs[unit]) pairs.emplace_back(item, unit);
    }
    return Lists<Unit>::group(r.num_items(), pairs);
  }

  std::vector<Position> last_use_, last_want_;
  std::vector<bool> evictable_;
  Lists<Unit> users_;
};

class Simulation {
 public:
  Simulation(const Reruns& reruns, const Wants& wants, std::int64_t budget, Work& work)
      : r_(reruns),
        wants_(wants),
        budget_(budget),
        work_(work),
        state_(reruns.num_items(), State::unmade),
        touched_(reruns.num_items()),
        pins_(reruns.num_items()),
        seen_(reruns.num_units()) {}

  // Nothing if the work or the patience is at its end.
  std::optional<Runs> run() && {
    for (; next_ < r_.num_ops(); ++next_) {
      if (!run_first(next_)) return std::nullopt;
    }
    return std::move(runs_);
  }

 private:
  enum class State : std::uint8_t { unmade, held, evicted };

  bool run_first(Position p) {
    for (const Item item : r_.takes[p]) ++pins_[item];
    for (const Item item : r_.takes[p]) {
      if (state_[item] != State::held && !make_again(item)) return false;
    }
    if (!make_room(bytes_made(r_.makes[p]) + r_.workspace[p])) return false;
    runs_.push_back({p, false});
    clock_ += r_.cost[p];
    for (const Item item : r_.makes[p]) hold(item);
    for (const Item item : r_.takes[p]) {
      --pins_[item];
      touched_[item] = clock_;
    }
    for (const Item item : r_.makes[p]) give_up(item, p);
    for (const Item item : r_.takes[p]) give_up(item, p);
    forget(p);
    return true;
  }

  // Depth first, without recursion: chains are as long as graphs are deep.
  bool make_again(Item wanted) {
    struct Open {
      Unit unit;
      std::size_t next;  // of what it needs
    };
    std::vector<Open> open = {{r_.made_by[wanted], 0}};
    pin(open.back().unit, 1);
    while (!open.empty()) {
      Open& top = open.back();
      const std::span<const Item> needs = r_.needs[top.unit];
      while (top.next < needs.size() && state_[needs[top.next]] == State::held) ++top.next;
      if (top.next < needs.size()) {
        const Unit unit = r_.made_by[needs[top.next++]];
        open.push_back({unit, 0});
        pin(unit, 1);
        continue;
      }
      if (!run_again(top.unit)) return false;
      pin(top.unit, -1);
      open.pop_back();
    }
    return true;
  }

  void pin(Unit unit, int more) {
    for (const Item item : r_.needs[unit]) pins_[item] += more;
  }

  bool run_again(Unit unit) {
    std::int64_t workspace = 0;
    for (const Position member : r_.members[unit]) workspace = std::max(workspace, r_.workspace[member]);
    if (!make_room(bytes_made(r_.gives[unit]) + workspace)) return false;
    for (const Position member : r_.members[unit]) runs_.push_back({member, true});
    repeats_ += r_.unit_cost[unit];
    clock_ += r_.unit_cost[unit];
    for (const Item item : r_.gives[unit]) hold(item);
    for (const Item item : r_.needs[unit]) touched_[item] = clock_;
    return repeats_ <= kMostRepeats * r_.total_cost && work_.spend(8 * r_.members[unit].size());
  }

  std::int64_t bytes_made(std::span<const Item> items) const {
    std::int64_t bytes = 0;
    for (const Item item : items) bytes += state_[item] == State::held ? 0 : r_.size[item];
    return bytes;
  }

  void hold(Item item) {
    touched_[item] = clock_;
    const bool is_over = state_[item] == State::evicted && !wants_.evictable(item);
    if (state_[item] == State::held || is_over) return;
    state_[item] = State::held;
    held_ += r_.size[item];
    if (wants_.evictable(item)) pool_.push_back(item);
  }

  void evict(Item item) {
    state_[item] = State::evicted;
    held_ -= r_.size[item];
    std::erase(pool_, item);
  }

  // Its last user was the op at p.
  void give_up(Item item, Position p) {
    if (state_[item] == State::held && wants_.last_use(item) <= p && wants_.evictable(item)) evict(item);
  }

  // What cannot be made again stays until nobody can want it any more.
  void forget(Position p) {
    for (const Item item : r_.makes[p]) {
      if (!wants_.evictable(item)) lasting_.push_back(item);
    }
    std::erase_if(lasting_, [&](Item item) {
      if (wants_.last_want(item) > p) return false;
      held_ -= r_.size[item];
      state_[item] = State::evicted;
      return true;
    });
  }

  bool make_room(std::int64_t bytes) {
    while (held_ + bytes > budget_) {
      std::optional<Item> lowest;
      double least = std::numeric_limits<double>::infinity();
      for (const Item item : pool_) {
        if (pins_[item] > 0 || r_.members[r_.made_by[item]].back() >= next_) continue;
        const auto cost = static_cast<double>(neighbourhood_cost(item));
        const auto stale = static_cast<double>(clock_ - touched_[item] + 1);
        const double score = cost / (static_cast<double>(r_.size[item]) * stale);
        if (score >= least) continue;
        least = score;
        lowest = item;
      }
      if (!work_.spend(16 * (pool_.size() + steps_))) return false;
      steps_ = 0;
      if (!lowest) return true;
      evict(*lowest);
    }
    return true;
  }

  // Of the item's unit, the evicted units that it is made from, and those made from it.
  std::int64_t neighbourhood_cost(Item item) {
    const Unit unit = r_.made_by[item];
    ++round_;
    seen_[unit] = round_;
    std::int64_t cost = r_.unit_cost[unit];
    const auto visit = [&](Unit other) {
      if (seen_[other] == round_) return;
      seen_[other] = round_;
      cost += r_.unit_cost[other];
      open_.push_back(other);
    };
    open_ = {unit};
    while (!open_.empty()) {
      const Unit last = open_.back();
      open_.pop_back();
      for (const Item needed : r_.needs[last]) {
        if (state_[needed] == State::evicted && wants_.evictable(needed)) visit(r_.made_by[needed]);
      }
      ++steps_;
    }
    open_ = {unit};
    while (!open_.empty()) {
      const Unit last = open_.back();
      open_.pop_back();
      for (const Item given : r_.gives[last]) {
        for (const Unit user : wants_.users(given)) {
          if (std::ranges::any_of(r_.gives[user], [&](Item made) { return state_[made] == State::evicted; }))
            visit(user);
        }
      }
      ++steps_;
    }
    return cost;
  }

  const Reruns& r_;
  const Wants& wants_;
  std::int64_t budget_;
  Work& work_;
  std::vector<State> state_;           // by item
  std::vector<std::int64_t> touched_;  // by item: when
  std::vector<int> pins_;              // by item: how many that are about to run need it
  std::vector<Item> pool_;             // held and evictable
  std::vector<Item> lasting_;          // held and not evictable
  std::int64_t held_ = 0;
  std::int64_t clock_ = 0;
  std::int64_t repeats_ = 0;
  Position next_ = 0;  // whose first run comes next
  Runs runs_;

  std::vector<std::uint64_t> seen_;  // by unit: in which round
  std::uint64_t round_ = 0;
  std::uint64_t steps_ = 0;
  std::vector<Unit> open_;
};

}  // namespace

Trades dtr_trades(const TradeBound&, const Reruns& reruns, Work& work) {
  const Wants wants(reruns);
  Collected collected(reruns, work);
  for (int i = 0; i < kDtrBudgets; ++i) {
    const std::int64_t budget = reruns.peak - i * (reruns.peak / kDtrBudgets);
    const std::optional<Runs> runs =
        with_part(work, work.left() / static_cast<std::uint64_t>(kDtrBudgets - i),
                  [&](Work& part) { return Simulation(reruns, wants, budget, part).run(); });
    if (runs && !collected.add(*runs)) break;
  }
  return std::move(collected).best();
}

}  // namespace lowtide
