#include "swap/absences.h"

#include <algorithm>
#include <queue>

namespace lowtide {
namespace {

struct StepRange {
  std::size_t begin;
  std::size_t end;
};

// The steps of an absence: one range, or what is behind its begin and before its end.
struct Stretch {
  StepRange first;
  StepRange second = {0, 0};

  template <typename Visit>
  void each(const Visit& visit) const {
    for (const StepRange& range : {first, second}) {
      if (range.begin < range.end) visit(range);
    }
  }
};

class Choice {
 public:
  Choice(const Tenants& tenants, std::span<const Absence> absences, const Link& link, std::vector<std::int64_t> excess,
         std::span<const Nanos> costs)
      : tenants_(tenants),
        absences_(absences),
        link_(link),
        excess_(std::move(excess)),
        start_(costs.size() + 1),
        own_(tenants.count()),
        chosen_(absences.size()) {
    for (std::size_t step = 0; step < costs.size(); ++step) start_[step + 1] = start_[step] + costs[step].count();
    for (std::size_t i = 0; i < absences.size(); ++i) {
      StepRange& own = own_[absences[i].tenant];
      if (own.end == 0) own.begin = i;
      own.end = i + 1;
    }
    measure();
  }

  std::optional<std::vector<bool>> run() {
    take_while_useful(/*hidden=*/true);
    for (const std::size_t i : taken_) {  // what follows may wait for the link
      add(hidden_stretch(i), size(i));
      add(whole_stretch(i), -size(i));
    }
    measure();
    take_while_useful(/*hidden=*/false);
    if (std::ranges::any_of(excess_, [](std::int64_t bytes) { return bytes > 0; })) return std::nullopt;
    give_up_needless();
    return std::move(chosen_);
  }

 private:
  struct Offer {
    double worth;
    std::size_t absence;
    bool operator<(const Offer& other) const {
      return worth != other.worth ? worth < other.worth : absence > other.absence;
    }
  };

  std::int64_t size(std::size_t i) const { return tenants_.size[absences_[i].tenant]; }
  Bytes bytes_of(std::size_t i) const { return Bytes(static_cast<std::uint64_t>(size(i))); }

  // The absence that must be chosen too: that around the step's end, for a resident tenant.
  std::optional<std::size_t> needed_by(std::size_t i) const {
    const std::uint32_t tenant = absences_[i].tenant;
    const std::size_t last = own_[tenant].end - 1;
    if (!tenants_.resident[tenant] || i == last || chosen_[last]) return std::nullopt;
    return last;
  }

  Stretch whole_stretch(std::size_t i) const {
    const Absence& absence = absences_[i];
    const std::size_t steps = excess_.size();
    if (absence.wraps()) return {{absence.begin, steps}, {0, absence.end}};
    return {{absence.begin, std::min(absence.end, steps)}};
  }

  // The steps that are left when the store follows its last use at once and the load ends right before the next.
  Stretch hidden_stretch(std::size_t i) const {
    const Absence& absence = absences_[i];
    const std::uint64_t stored = start_[absence.begin] + store_time(link_, bytes_of(i)).count();
    const std::uint64_t load = load_time(link_, bytes_of(i)).count();
    const auto from = static_cast<std::size_t>(std::ranges::lower_bound(start_, stored) - start_.begin());
    const std::uint64_t due = start_[absence.end] < load ? 0 : start_[absence.end] - load;
    const auto to = static_cast<std::size_t>(std::ranges::upper_bound(start_, due) - start_.begin()) - 1;
    if (absence.wraps()) return {{from, excess_.size()}, {0, std::min(to, absence.end)}};
    return {{from, std::min(to, absence.end)}};
  }

  Stretch stretch(std::size_t i, bool hidden) const { return hidden ? hidden_stretch(i) : whole_stretch(i); }

  // How much of the excess it covers, at most, for each nanosecond of the link that it adds; 0 where it covers none.
  double worth(std::size_t i, bool hidden) {
    const std::optional<std::size_t> with = needed_by(i);
    double covered = covers(stretch(i, hidden), size(i));
    if (with) covered += covers(stretch(*with, hidden), size(*with));
    if (covered == 0) return 0;
    const StepRange own = own_[absences_[i].tenant];
    const std::span<const Absence> absences = absences_.subspan(own.begin, own.end - own.begin);
    const Nanos store = store_time(link_, bytes_of(i));
    const Nanos load = load_time(link_, bytes_of(i));
    const auto link_time = [&](const auto& chosen) {
      std::uint64_t time = 0;
      each_trip(tenants_, absences, chosen, [&](std::size_t, bool stores, bool loads) {
        time += (stores ? store.count() : 0) + (loads ? load.count() : 0);
      });
      return time;
    };
    const auto is_chosen = [&](std::size_t own_index) { return bool{chosen_[own.begin + own_index]}; };
    const std::uint64_t before = link_time(is_chosen);
    const std::uint64_t after = link_time([&](std::size_t own_index) {
      const std::size_t absence = own.begin + own_index;
      return absence == i || absence == with || is_chosen(own_index);
    });
    return covered / (after > before ? static_cast<double>(after - before) : 1.0);
  }

  double covers(const Stretch& stretch, std::int64_t bytes) const {
    double covered = 0;
    stretch.each([&](StepRange range) {
      const auto steps = static_cast<double>(above_[range.end] - above_[range.begin]);
      covered += std::min(steps * static_cast<double>(bytes), sum_[range.end] - sum_[range.begin]);
    });
    return covered;
  }

  void take_while_useful(bool hidden) {
    std::priority_queue<Offer> offers;
    const auto offer = [&](std::size_t i) {
      if (chosen_[i]) return;
      if (const double worth_now = worth(i, hidden); worth_now > 0) offers.push({worth_now, i});
    };
    for (std::size_t i = 0; i < absences_.size(); ++i) offer(i);
    while (!offers.empty() && above_.back() > 0) {
      const Offer best = offers.top();
      offers.pop();
      if (chosen_[best.absence]) continue;
      const double now = worth(best.absence, hidden);
      if (now < best.worth) {  // what was taken since covers some of it
        if (now > 0) offers.push({now, best.absence});
        continue;
      }
      const std::optional<std::size_t> with = needed_by(best.absence);
      if (with) take(*with, hidden);
      take(best.absence, hidden);
      measure();
      // What it has stored need not be stored again.
      const StepRange own = own_[absences_[best.absence].tenant];
      for (std::size_t i = own.begin; i < own.end; ++i) offer(i);
    }
  }

  void take(std::size_t i, bool hidden) {
    chosen_[i] = true;
    taken_.push_back(i);
    add(stretch(i, hidden), -size(i));
  }

  void give_up_needless() {
    std::vector<std::uint32_t> others(tenants_.count());  // by tenant: inner absences taken
    for (const std::size_t i : taken_) others[absences_[i].tenant] += absences_[i].wraps() ? 0 : 1;
    for (auto i = taken_.rbegin(); i != taken_.rend(); ++i) {
      const std::uint32_t tenant = absences_[*i].tenant;
      if (absences_[*i].wraps() && others[tenant] > 0) continue;
      bool needed = false;
      whole_stretch(*i).each([&](StepRange range) {
        for (std::size_t step = range.begin; step < range.end && !needed; ++step) needed = excess_[step] + size(*i) > 0;
      });
      if (needed) continue;
      chosen_[*i] = false;
      if (!absences_[*i].wraps()) --others[tenant];
      add(whole_stretch(*i), size(*i));
    }
  }

  void add(const Stretch& stretch, std::int64_t bytes) {
    stretch.each([&](StepRange range) {
      for (std::size_t step = range.begin; step < range.end; ++step) excess_[step] += bytes;
    });
  }

  void measure() {
    above_.assign(excess_.size() + 1, 0);
    sum_.assign(excess_.size() + 1, 0);
    for (std::size_t step = 0; step < excess_.size(); ++step) {
      above_[step + 1] = above_[step] + (excess_[step] > 0 ? 1 : 0);
      sum_[step + 1] = sum_[step] + static_cast<double>(std::max<std::int64_t>(excess_[step], 0));
    }
  }

  const Tenants& tenants_;
  std::span<const Absence> absences_;
  const Link& link_;
  std::vector<std::int64_t> excess_;  // by step
  std::vector<std::uint64_t> start_;  // by step: when it begins, if nothing waits
  std::vector<StepRange> own_;        // by tenant: its absences
  std::vector<bool> chosen_;          // by absence
  std::vector<std::size_t> taken_;    // in the order in which they were
  std::vector<std::uint32_t> above_;  // before each step: how many have an excess
  std::vector<double> sum_;           // before each step: the sum of those
};

}  // namespace

std::vector<Absence> absences_of(const Tenants& tenants) {
  std::vector<Absence> absences;
  for (std::uint32_t tenant = 0; tenant < tenants.count(); ++tenant) {
    const std::span<const TenantUse> uses = tenants.uses[tenant];
    for (std::size_t i = 0; i + 1 < uses.size(); ++i) {
      if (uses[i].step + 1 < uses[i + 1].step) absences.push_back({tenant, uses[i].step + 1, uses[i + 1].step});
    }
    if (!tenants.resident[tenant]) continue;
    absences.push_back({tenant, uses.back().step + 1, uses.front().step});
  }
  return absences;
}

std::optional<std::vector<bool>> choose_absences(const Tenants& tenants, std::span<const Absence> absences,
                                                 const Link& link, std::vector<std::int64_t> excess,
                                                 std::span<const Nanos> costs) {
  return Choice(tenants, absences, link, std::move(excess), costs).run();
}

}  // namespace lowtide
