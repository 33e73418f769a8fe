#include "swap/timetable.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "trade/peak_tree.h"

namespace lowtide {
namespace {

// Of the link's rate that loads are planned with: the rest is for times that turn out longer than was thought.
constexpr double kTrust = 0.8;

// Loads that wait for room before later ones are looked at.
constexpr std::size_t kLookahead = 64;

class TimedRun {
 public:
  TimedRun(const Tenants& tenants, std::span<const Absence> absences, const std::vector<bool>& chosen, const Link& link,
           std::span<const std::int64_t> need, std::int64_t limit, std::span<const Nanos> costs)
      : tenants_(tenants),
        absences_(absences),
        link_(link),
        limit_(limit),
        costs_(costs),
        steps_(costs.size()),
        need_(steps_),
        stores_at_(steps_ + 1),
        loads_at_(steps_ + 1) {
    for (std::size_t step = 0; step < steps_; ++step) need_.add(step, step, need[step]);
    find_trips(chosen);
    plan_loads();
  }

  Timetable run() {
    for (std::size_t step = 0; step <= steps_; ++step) {
      for (const std::uint32_t trip : stores_at_[step]) begin_store(trip, step);
      for (const std::uint32_t trip : loads_at_[step]) due_.insert({deadline(trip), trip});
      end_stores(step);
      begin_loads(step);
      end_loads(step);
      if (step < steps_) now_ += costs_[step].count();
    }
    return {std::move(trips_), std::move(issued_), Nanos(now_)};
  }

 private:
  struct Flight {
    std::uint32_t trip;
    std::uint64_t over;
  };

  std::int64_t size(std::uint32_t trip) const { return tenants_.size[absences_[trips_[trip].absence].tenant]; }
  Bytes bytes(std::uint32_t trip) const { return Bytes(static_cast<std::uint64_t>(size(trip))); }
  std::size_t deadline(std::uint32_t trip) const { return absences_[trips_[trip].absence].end; }

  // One for each chosen absence.
  void find_trips(const std::vector<bool>& chosen) {
    std::size_t next = 0;
    for (std::uint32_t tenant = 0; tenant < tenants_.count(); ++tenant) {
      const std::size_t begin = next;
      while (next < absences_.size() && absences_[next].tenant == tenant) ++next;
      if (begin == next) continue;
      each_trip(
          tenants_, absences_.subspan(begin, next - begin), [&](std::size_t i) { return bool{chosen[begin + i]}; },
          [&](std::size_t i, bool stores, bool loads) {
            trips_.push_back({static_cast<std::uint32_t>(begin + i), stores, loads});
          });
    }
    for (std::uint32_t trip = 0; trip < trips_.size(); ++trip) {
      if (trips_[trip].stores) stores_at_[absences_[trips_[trip].absence].begin].push_back(trip);
    }
  }

  bool loads_what_was_stored(std::uint32_t trip) const {
    return trips_[trip].stores && !absences_[trips_[trip].absence].wraps();
  }

  // From the last use backwards, each load as late as those behind it allow, at the share of the link that is theirs.
  void plan_loads() {
    double storing = 0;
    double loading = 0;
    std::vector<std::uint32_t> loads;
    for (std::uint32_t trip = 0; trip < trips_.size(); ++trip) {
      if (trips_[trip].stores) storing += static_cast<double>(store_time(link_, bytes(trip)).count());
      if (!trips_[trip].loads) continue;
      loading += static_cast<double>(load_time(link_, bytes(trip)).count());
      loads.push_back(trip);
    }
    const double share = kTrust * (link_.duplex || loading == 0 ? 1.0 : loading / (loading + storing));
    std::vector<double> start(steps_ + 1);
    for (std::size_t step = 0; step < steps_; ++step) {
      start[step + 1] = start[step] + static_cast<double>(costs_[step].count());
    }
    std::ranges::stable_sort(loads, {}, [&](std::uint32_t trip) { return deadline(trip); });
    double latest = start.back();
    for (auto trip = loads.rbegin(); trip != loads.rend(); ++trip) {
      latest = std::min(latest, start[deadline(*trip)]);
      latest -= static_cast<double>(load_time(link_, bytes(*trip)).count()) / share;
      const auto after = static_cast<std::size_t>(std::ranges::upper_bound(start, latest) - start.begin());
      const std::size_t wanted = std::min(after == 0 ? 0 : after - 1, deadline(*trip));
      const bool wraps = absences_[trips_[*trip].absence].wraps();
      const std::size_t earliest = wraps ? 0 : absences_[trips_[*trip].absence].begin;
      loads_at_[std::max(wanted, earliest)].push_back(*trip);
    }
  }

  void begin_store(std::uint32_t trip, std::size_t step) {
    std::uint64_t& clock = store_clock_;
    clock = std::max(clock, now_) + store_time(link_, bytes(trip)).count();
    trips_[trip].store.issue = step;
    issued_.push_back({trip, false});
    storing_.push_back({trip, clock});
    leaving_ += size(trip);
  }

  // Those that are over, and at the end all; more where the step needs their bytes, or what they store.
  void end_stores(std::size_t step) {
    const std::int64_t needed = step < steps_ ? need_.highest_in(step, step) : 0;
    while (!storing_.empty() && (storing_.front().over <= now_ || needed + leaving_ > limit_ || step == steps_)) {
      end_first_store(step);
    }
    for (auto due = due_.begin(); due != due_.end() && due->first == step; ++due) {
      while (!is_there(due->second)) end_first_store(step);
    }
  }

  void end_first_store(std::size_t step) {
    const Flight flight = storing_.front();
    storing_.pop_front();
    now_ = std::max(now_, flight.over);
    trips_[flight.trip].store.wait = step;
    leaving_ -= size(flight.trip);
    is_stored_.insert(flight.trip);
  }

  // Whether the tier has what is to be loaded.
  bool is_there(std::uint32_t trip) const { return !loads_what_was_stored(trip) || is_stored_.contains(trip); }

  void begin_loads(std::size_t step) {
    std::size_t waiting = 0;
    for (auto due = due_.begin(); due != due_.end() && waiting < kLookahead;) {
      const auto [use, trip] = *due;
      const bool room = use == step || need_.highest_in(step, use - 1) + leaving_ + size(trip) <= limit_;
      if (is_there(trip) && room) {
        begin_load(trip, step);
        due = due_.erase(due);
      } else {
        ++waiting;
        ++due;
      }
    }
  }

  void end_loads(std::size_t step) {
    while (!loading_.empty() && loading_.begin()->first.first == step) {
      now_ = std::max(now_, loading_.begin()->second);
      loading_.erase(loading_.begin());
    }
  }

  void begin_load(std::uint32_t trip, std::size_t step) {
    std::uint64_t& clock = link_.duplex ? load_clock_ : store_clock_;
    clock = std::max(clock, now_) + load_time(link_, bytes(trip)).count();
    const std::size_t use = deadline(trip);
    trips_[trip].load = {step, use};
    issued_.push_back({trip, true});
    if (step < use) need_.add(step, use - 1, size(trip));
    loading_.insert({{use, trip}, clock});
  }

  const Tenants& tenants_;
  std::span<const Absence> absences_;
  const Link& link_;
  std::int64_t limit_;
  std::span<const Nanos> costs_;
  std::size_t steps_;
  PeakTree need_;  // by step, with what was loaded early
  std::vector<Trip> trips_;
  std::vector<Issued> issued_;
  std::vector<std::vector<std::uint32_t>> stores_at_;  // by step: trips
  std::vector<std::vector<std::uint32_t>> loads_at_;   // by step: when they should begin

  std::uint64_t now_ = 0;  // the compute's clock
  std::uint64_t store_clock_ = 0;
  std::uint64_t load_clock_ = 0;
  std::deque<Flight> storing_;
  std::int64_t leaving_ = 0;                             // bytes of those
  std::set<std::uint32_t> is_stored_;                    // trips
  std::set<std::pair<std::size_t, std::uint32_t>> due_;  // by use: trips to be loaded as soon as there is room
  std::map<std::pair<std::size_t, std::uint32_t>, std::uint64_t> loading_;  // by use and trip: when it is over
};

}  // namespace

Timetable make_timetable(const Tenants& tenants, std::span<const Absence> absences, const std::vector<bool>& chosen,
                         const Link& link, std::span<const std::int64_t> need, std::int64_t limit,
                         std::span<const Nanos> costs) {
  return TimedRun(tenants, absences, chosen, link, need, limit, costs).run();
}

}  // namespace lowtide
