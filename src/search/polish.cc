#include "search/polish.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "search/chance.h"
#include "search/moves.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kStepsAMove = 1500;
constexpr std::size_t kLongestChain = 16;  // units that are added together
constexpr std::size_t kMostTaken = 6;      // units taken back at random

struct Place {
  Unit unit;
  Position slot;

  auto operator<=>(const Place&) const = default;
};

class Polishing {
 public:
  Polishing(const Replays& replays, const Trade& start, std::int64_t limit, std::uint64_t seed, Work& work)
      : r_(replays), limit_(limit), work_(work), chance_(seed), moves_(replays, start.runs) {
    std::vector<Position> waiting;
    for (const auto& [op, again] : start.runs) {
      if (again) {
        const Place place{r_.unit[op], 0};
        if (std::ranges::find(waiting, place.unit) == waiting.end()) waiting.push_back(place.unit);
        continue;
      }
      for (const Unit unit : waiting) places_.push_back({unit, op});
      waiting.clear();
    }
  }

  Trade run() {
    tidy();
    std::int64_t peak = moves_.peak();
    std::int64_t cost = moves_.cost();
    while (spend(kStepsAMove)) {
      done_.clear();
      take_some_back();
      fill();
      if (moves_.peak() <= peak) tidy();
      const bool better = moves_.cost() <= limit_ && std::pair(moves_.peak(), moves_.cost()) < std::pair(peak, cost);
      if (better) {
        peak = moves_.peak();
        cost = moves_.cost();
      } else {
        undo();
      }
    }
    const Runs runs = needed_runs(r_, moves_.runs());
    const Outcome outcome = Evaluation(r_).of(runs);
    return {outcome.cost, outcome.peak, runs};
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

  void fill() {
    struct Offer {
      double gain;
      std::vector<Place> chain;
    };
    while (work_.left() > 0) {
      const std::int64_t peak = moves_.peak();
      std::vector<Offer> offers;
      for (const auto& [item, slot] : moves_.waiting_at_peak()) {
        if (slot < r_.turn || moves_.runs_again(r_.made_by[item], slot)) continue;
        Offer offer;
        if (!chain_for(item, slot, offer.chain)) continue;
        const std::int64_t cost = cost_of(offer.chain);
        if (moves_.cost() + cost > limit_) continue;
        const double noise = 0.7 + 0.6 * chance_.share();
        offer.gain = noise * static_cast<double>(r_.size[item]) / static_cast<double>(std::max<std::int64_t>(cost, 1));
        offers.push_back(std::move(offer));
      }
      spend(8 * r_.candidates.size());
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

  const Replays& r_;
  std::int64_t limit_;
  Work& work_;
  Chance chance_;
  Moves moves_;
  std::vector<Place> places_;  // what runs again
  std::vector<Move> done_;     // since the last state that was good
};

}  // namespace

Trade polish(const Replays& replays, const Trade& start, std::int64_t limit, std::uint64_t seed, Work& work) {
  const Trade made = Polishing(replays, start, limit, seed, work).run();
  const bool better = made.cost <= limit && std::pair(made.peak, made.cost) < std::pair(start.peak, start.cost);
  return better ? made : start;
}

}  // namespace lowtide
