#include "trade/polish.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/chance.h"
#include "base/pareto.h"
#include "trade/moves.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kStepsAMove = 1300;
constexpr std::uint64_t kStepsAnOp = 100;       // to set up, or to write down the runs
constexpr std::uint64_t kStepsACandidate = 60;  // to see what frees something
constexpr std::int64_t kTooClose = 20'000;      // of the peak: states that differ by less are not worth keeping both
constexpr std::size_t kOffers = 24;             // that are looked at closely
constexpr std::size_t kLongestChain = 16;       // units that are added together
constexpr std::size_t kMostTaken = 6;           // units taken back at random

struct Place {
  Unit unit;
  Position slot;

  auto operator<=>(const Place&) const = default;
};

Trade start_within(const Reruns& r, const Trades& trades, std::int64_t limit) {
  if (const Trade* lowest = lowest_within(trades, limit)) return *lowest;
  return {.cost = 0, .peak = r.peak, .runs = each_once(r)};
}

class Polishing {
 public:
  Polishing(const Reruns& reruns, Trades& trades, std::int64_t limit, std::uint64_t seed, Work& work)
      : r_(reruns),
        trades_(trades),
        limit_(limit),
        work_(work),
        chance_(seed),
        moves_(reruns, start_within(reruns, trades, limit).runs) {
    spend(kStepsAnOp * r_.num_ops());
    std::vector<Unit> waiting;
    for (const auto& [op, again] : moves_.runs()) {
      if (again) {
        if (std::ranges::find(waiting, r_.unit[op]) == waiting.end()) waiting.push_back(r_.unit[op]);
        continue;
      }
      for (const Unit unit : waiting) places_.push_back({unit, op});
      waiting.clear();
    }
  }

  void polish() {
    tidy();
    record();
    std::int64_t peak = moves_.peak();
    std::int64_t cost = moves_.cost();
    while (spend(kStepsAMove)) {
      done_.clear();
      take_some_back();
      fill();
      if (moves_.peak() <= peak) tidy();
      if (moves_.cost() <= limit_ && std::pair(moves_.peak(), moves_.cost()) < std::pair(peak, cost)) {
        record();
        peak = moves_.peak();
        cost = moves_.cost();
      } else {
        undo();
      }
    }
  }

  void fill_up(bool by_chance) {
    limit_ = std::numeric_limits<std::int64_t>::max();
    if (!by_chance) noise_ = 0;
    fill();
  }

  void thin_out(std::int64_t least) {
    while (moves_.cost() > least && work_.left() > 0) {
      std::optional<Place> best;
      double most = 0;
      const std::int64_t peak = moves_.peak();
      for (const Place place : std::vector<Place>(places_)) {
        remove(place);
        const auto more = static_cast<double>(std::max<std::int64_t>(moves_.peak() - peak, 1));
        const double gain = static_cast<double>(std::max<std::int64_t>(r_.unit_cost[place.unit], 1)) / more;
        undo(done_.size() - 1);
        if (gain > most) {
          most = gain;
          best = place;
        }
      }
      if (!best) return;
      remove(*best);
      record();
    }
  }

 private:
  struct Move {
    Place place;
    bool added;
  };

  void add(Place place) {
    spend(kStepsAMove);
    moves_.add(place.unit, place.slot);
    places_.push_back(place);
    done_.push_back({place, true});
  }

  void remove(Place place) {
    spend(kStepsAMove);
    moves_.remove(place.unit, place.slot);
    const auto found = std::ranges::find(places_, place);
    *found = places_.back();
    places_.pop_back();
    done_.push_back({place, false});
  }

  // What cannot be paid for ends the work: moves under way are finished first.
  bool spend(std::uint64_t steps) {
    if (work_.spend(steps)) return true;
    work_.spend(work_.left());
    return false;
  }

  void undo(std::size_t from = 0) {
    while (done_.size() > from) {
      const auto [place, added] = done_.back();
      added ? remove(place) : add(place);
      done_.resize(done_.size() - 2);
    }
  }

  // Adds this state to the trades, if it is new.
  void record() {
    if (is_reached(trades_, moves_.cost(), moves_.peak() + r_.peak / kTooClose) || !spend(kStepsAnOp * r_.num_ops()))
      return;
    Runs runs = needed_runs(r_, moves_.runs());
    const Outcome outcome = Evaluation(r_).of(runs);
    if (!is_reached(trades_, outcome.cost, outcome.peak))
      add_point(trades_, {outcome.cost, outcome.peak, std::move(runs)});
  }

  void take_some_back() {
    for (std::size_t i = 1 + chance_.below(kMostTaken); i > 0 && !places_.empty(); --i) {
      remove(places_[chance_.below(places_.size())]);
    }
  }

  // The unit that makes the item, and those of what it needs that is not there, each before who needs it. False if one
  // of them cannot run again there, or they are too many.
  bool chain_for(Item item, Position slot, std::vector<Place>& chain) const {
    const Unit unit = r_.made_by[item];
    if (!r_.repeatable[unit] || slot > r_.until[unit] || chain.size() == kLongestChain) return false;
    if (r_.members[unit].back() >= slot) return false;
    if (moves_.runs_again(unit, slot) || std::ranges::find(chain, Place{unit, slot}) != chain.end()) return true;
    chain.push_back({unit, slot});
    return std::ranges::all_of(r_.needs[unit], [&](Item needed) {
      return moves_.is_held_before(needed, slot) || chain_for(needed, slot, chain);
    });
  }

  std::int64_t cost_of(std::span<const Place> chain) const {
    std::int64_t cost = 0;
    for (const Place& place : chain) cost += r_.unit_cost[place.unit];
    return cost;
  }

  // What waits at the fullest moment, by how much it would free at best for its cost: more may have to run again.
  struct Hope {
    double worth;  // its bytes, and some luck
    double gain;
    Item item;
    Position slot;
  };
  std::vector<Hope> hopes() {
    std::vector<Hope> found;
    for (const auto& [item, slot] : moves_.waiting_at_peak()) {
      const Unit unit = r_.made_by[item];
      if (slot < r_.turn || moves_.cost() > limit_ - r_.unit_cost[unit] || moves_.runs_again(unit, slot)) continue;
      const double worth = (1 + noise_ * (chance_.share() - 0.5)) * static_cast<double>(r_.size[item]);
      const auto cost = static_cast<double>(std::max<std::int64_t>(r_.unit_cost[unit], 1));
      found.push_back({worth, worth / cost, item, slot});
    }
    std::ranges::stable_sort(found, std::ranges::greater{}, &Hope::gain);
    return found;
  }

  void fill() {
    struct Offer {
      double gain;
      std::vector<Place> chain;
    };
    while (work_.left() > 0) {
      const std::int64_t peak = moves_.peak();
      std::vector<Offer> offers;
      for (const Hope& hope : hopes()) {
        Offer offer;
        if (!chain_for(hope.item, hope.slot, offer.chain)) continue;
        const std::int64_t cost = cost_of(offer.chain);
        if (moves_.cost() > limit_ - cost) continue;
        offer.gain = hope.worth / static_cast<double>(std::max<std::int64_t>(cost, 1));
        offers.push_back(std::move(offer));
        if (offers.size() == kOffers) break;
      }
      spend(kStepsACandidate * r_.candidates.size());
      std::ranges::stable_sort(offers, std::ranges::greater{}, &Offer::gain);
      const auto is_good = [&](const Offer& offer) {
        const std::size_t before = done_.size();
        const std::size_t fullest = moves_.fullest();
        for (const Place& place : offer.chain) add(place);
        // Of several moments that are as full, one is no longer.
        if (moves_.peak() < peak || (moves_.peak() == peak && moves_.fullest() > fullest)) return true;
        undo(before);
        return false;
      };
      if (std::ranges::none_of(offers, is_good)) return;
      record();
    }
  }

  // Takes back what the peak does not need, the costliest first.
  void tidy() {
    const std::int64_t peak = moves_.peak();
    std::vector<Place> all = places_;
    std::ranges::sort(all, std::ranges::greater{},
                      [&](const Place& place) { return std::tuple(r_.unit_cost[place.unit], place); });
    for (const Place& place : all) {
      if (work_.left() == 0) return;
      const std::size_t before = done_.size();
      remove(place);
      if (moves_.peak() > peak) undo(before);
    }
  }

  const Reruns& r_;
  Trades& trades_;
  std::int64_t limit_;
  Work& work_;
  Chance chance_;
  Moves moves_;
  std::vector<Place> places_;  // what runs again
  double noise_ = 0.6;         // how much chance decides about what is added
  std::vector<Move> done_;     // since the last state that was good
};

}  // namespace

void polish(const Reruns& reruns, Trades& trades, std::int64_t limit, std::uint64_t seed, Work& work) {
  Polishing(reruns, trades, limit, seed, work).polish();
}

void fill_up(const Reruns& reruns, Trades& trades, std::uint64_t seed, Work& work) {
  Polishing(reruns, trades, -1, seed, work).fill_up(seed > 0);
}

void thin_out(const Reruns& reruns, Trades& trades, std::int64_t limit, std::int64_t least, Work& work) {
  Polishing(reruns, trades, limit, 1, work).thin_out(least);
}

}  // namespace lowtide
