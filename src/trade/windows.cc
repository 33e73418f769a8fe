#include "trade/windows.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/pareto.h"

namespace lowtide {
namespace {

constexpr std::int64_t kValley = 2;  // between two windows at most one in so many of the bytes wait that do in each
constexpr std::int64_t kLeast = 20;  // what is less than one in so many of the most that wait is nothing
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// How the items of a step lie in its order.
struct WindowSpans {
  std::vector<Position> made;  // by item
  std::vector<Position> used;  // by item: the last op that touches it; the number of ops if it is kept

  explicit WindowSpans(const Reruns& r) : made(r.num_items()), used(r.num_items()) {
    for (Position p = 0; p < r.num_ops(); ++p) {
      for (const Item item : r.makes[p]) made[item] = used[item] = p;
      for (const Item item : r.takes[p]) used[item] = p;
    }
    for (Item item = 0; item < r.num_items(); ++item) {
      if (r.kept[item]) used[item] = static_cast<Position>(r.num_ops());
    }
  }
};

// By position: the bytes that wait right before the op. A chain of ops that change an item in place has made it once
// they all have run: gradients that are added up from turn to turn are not waiting in between.
std::vector<std::int64_t> waiting_bytes(const Reruns& r, const WindowSpans& spans) {
  std::vector<std::int64_t> waiting(r.num_ops() + 1);
  for (Unit unit = 0; unit < r.num_units(); ++unit) {
    const std::span<const Position> members = r.members[unit];
    const auto is_backward = [&](Position p) { return r.backward[p]; };
    if (!r.may_run_again[unit] || std::ranges::any_of(members, is_backward)) continue;
    for (const Item item : r.gives[unit]) {
      if (r.kept[item] || spans.used[item] <= members.back()) continue;
      waiting[members.back() + 1] += r.size[item];
      waiting[spans.used[item] + 1] -= r.size[item];
    }
  }
  for (Position p = 1; p < waiting.size(); ++p) waiting[p] += waiting[p - 1];
  return waiting;
}

// Of the places where a backward pass begins, from `begin` to `end`, the one where the most bytes wait.
std::optional<Position> turn_between(const Reruns& r, std::span<const std::int64_t> waiting, Position begin,
                                     Position end) {
  std::optional<Position> turn;
  for (Position p = begin + 1; p < end; ++p) {
    if (!r.backward[p] || r.backward[p - 1]) continue;
    if (!turn || waiting[p] > waiting[*turn]) turn = p;
  }
  return turn;
}

// The lowest places between two hills, each of which has a turn; from 0 to the number of ops.
std::vector<Position> find_bounds(const Reruns& r, std::span<const std::int64_t> waiting) {
  const std::int64_t least = std::ranges::max(waiting) / kLeast;
  std::vector<Position> bounds = {0};
  std::int64_t highest = 0;  // since the last bound
  Position lowest = 0;       // since then; behind it another hill may begin
  bool falls = false;
  for (Position p = 0; p < r.num_ops(); ++p) {
    if (waiting[p] > highest && !falls) highest = waiting[p];
    if (falls ? waiting[p] <= waiting[lowest] : highest > kValley * least && waiting[p] < highest / kValley) {
      falls = true;
      lowest = p;
    }
    if (!falls || waiting[p] <= kValley * std::max(waiting[lowest], least)) continue;
    if (turn_between(r, waiting, bounds.back(), lowest)) bounds.push_back(lowest);
    falls = false;
    highest = waiting[p];
  }
  const auto end = static_cast<Position>(r.num_ops());
  if (bounds.size() > 1 && !turn_between(r, waiting, bounds.back(), end)) bounds.pop_back();
  bounds.push_back(end);
  return bounds;
}

class Cutting {
 public:
  Cutting(const Reruns& step, const WindowSpans& spans, Position begin, Position end, Position turn)
      : step_(step), spans_(spans), begin_(begin), end_(end), turn_(turn) {}

  Window made() && {
    number_items();
    copy_ops();
    copy_units();
    find_candidates();
    return {begin_, end_, std::move(made_)};
  }

 private:
  bool is_inside(Position p) const { return begin_ <= p && p < end_; }
  bool is_there_before(Item item) const { return spans_.made[item] < begin_ && spans_.used[item] >= begin_; }
  Position own(Position p) const { return p - begin_ + 1; }

  void number_items() {
    number_.assign(step_.num_items(), kNone);
    for (Item item = 0; item < step_.num_items(); ++item) {
      const bool outlives = spans_.used[item] >= end_;
      if (is_there_before(item) && outlives) all_along_ += step_.size[item];
      const bool begins_inside = is_inside(spans_.made[item]);
      if (!begins_inside && (!is_there_before(item) || outlives)) continue;
      number_[item] = static_cast<Item>(made_.size.size());
      made_.size.push_back(step_.size[item]);
      made_.kept.push_back(outlives);
      made_.used_late.push_back(outlives);
      made_.buffer.push_back(step_.buffer[item]);
    }
  }

  std::vector<Item> numbered(std::span<const Item> items) const {
    std::vector<Item> own;
    for (const Item item : items) {
      if (number_[item] != kNone) own.push_back(number_[item]);
    }
    return own;
  }

  void copy_ops() {
    made_.turn = own(turn_);
    std::vector<Item> there;
    for (Item item = 0; item < step_.num_items(); ++item) {
      if (is_there_before(item) && number_[item] != kNone) there.push_back(number_[item]);
    }
    made_.order.push_back(step_.order[begin_]);
    made_.backward.push_back(false);
    made_.cost.push_back(0);
    made_.workspace.push_back(all_along_);
    made_.takes.close();
    made_.changes.close();
    made_.makes.add(there);
    made_.reuses.close();
    for (Position p = begin_; p < end_; ++p) {
      made_.order.push_back(step_.order[p]);
      made_.backward.push_back(step_.backward[p]);
      made_.cost.push_back(step_.cost[p]);
      made_.total_cost += step_.cost[p];
      made_.workspace.push_back(step_.workspace[p] + all_along_);
      made_.takes.add(numbered(step_.takes[p]));
      made_.changes.add(numbered(step_.changes[p]));
      made_.makes.add(numbered(step_.makes[p]));
      std::vector<ItemReuse> reuses;
      for (const auto& [from, to] : step_.reuses[p]) {
        if (number_[from] != kNone) reuses.push_back({number_[from], number_[to]});
      }
      made_.reuses.add(reuses);
      if (p < turn_) continue;
      for (const Item item : made_.takes[own(p)]) made_.used_late[item] = true;
    }
    made_.costs_are_times = step_.costs_are_times;
  }

  // The op that stands for those before is a unit, and so are the ops of each unit of the step that lie in the window.
  void copy_units() {
    made_.unit.assign(made_.num_ops(), kNone);
    made_.made_by.assign(made_.num_items(), kNone);
    add_unit(std::vector<Position>{0}, false, static_cast<Position>(made_.num_ops()));
    for (Position p = begin_; p < end_; ++p) {
      if (made_.unit[own(p)] != kNone) continue;
      const Unit unit = step_.unit[p];
      std::vector<Position> members;
      for (const Position member : step_.members[unit]) {
        if (is_inside(member)) members.push_back(own(member));
      }
      const bool whole = members.size() == step_.members[unit].size();
      const Position until = std::min(step_.until[unit], end_);
      add_unit(members, whole && step_.may_run_again[unit], until > begin_ ? own(until) : 0);
    }
  }

  void add_unit(std::span<const Position> members, bool may_run_again, Position until) {
    const auto unit = static_cast<Unit>(made_.unit_cost.size());
    std::int64_t cost = 0;
    std::vector<Item> needs, gives;
    for (const Position member : members) {
      made_.unit[member] = unit;
      cost += made_.cost[member];
      for (const Item item : made_.makes[member]) {
        made_.made_by[item] = unit;
        gives.push_back(item);
      }
      for (const Item item : made_.takes[member]) {
        if (made_.made_by[item] != unit && std::ranges::find(needs, item) == needs.end()) needs.push_back(item);
      }
    }
    made_.unit_cost.push_back(cost);
    made_.members.add(members);
    made_.needs.add(needs);
    made_.gives.add(gives);
    made_.may_run_again.push_back(may_run_again);
    made_.repeatable.push_back(may_run_again && members.back() < made_.turn);
    made_.until.push_back(until);
  }

  void find_candidates() {
    made_.peak = Evaluation(made_).of(each_once(made_)).peak;
    made_.candidates = candidates_of(made_);
  }

  const Reruns& step_;
  const WindowSpans& spans_;
  Position begin_, end_, turn_;
  std::int64_t all_along_ = 0;  // bytes that are there before, behind and all the time
  std::vector<Item> number_;    // by item of the step
  Reruns made_;
};

}  // namespace

Runs Window::spread(const Runs& runs) const {
  Runs all;
  for (const auto& [op, again] : runs) {
    if (op > 0) all.push_back({begin + op - 1, again});
  }
  return all;
}

std::vector<Window> windows_of(const Reruns& step) {
  if (step.num_ops() == 0) return {};
  const WindowSpans spans(step);
  const std::vector<std::int64_t> waiting = waiting_bytes(step, spans);
  const std::vector<Position> bounds = find_bounds(step, waiting);
  std::vector<Window> windows;
  if (bounds.size() < 3) return windows;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const Position turn = *turn_between(step, waiting, bounds[i], bounds[i + 1]);
    windows.push_back(Cutting(step, spans, bounds[i], bounds[i + 1], turn).made());
  }
  return windows;
}

Trades together(const std::vector<Trades>& trades) {
  std::vector<std::int64_t> peaks;
  for (const Trades& window : trades) {
    for (const Trade& trade : window) peaks.push_back(trade.peak);
  }
  std::ranges::sort(peaks, std::ranges::greater{});
  peaks.erase(std::ranges::unique(peaks).begin(), peaks.end());
  Trades all;
  for (const std::int64_t peak : peaks) {
    Trade sum;
    std::vector<const Trade*> parts;
    for (const Trades& window : trades) {
      const auto cheapest = std::ranges::find_if(window, [&](const Trade& trade) { return trade.peak <= peak; });
      if (cheapest == window.end()) return all;
      sum.cost += cheapest->cost;
      sum.peak = std::max(sum.peak, cheapest->peak);
      parts.push_back(&*cheapest);
    }
    if (is_reached(all, sum.cost, sum.peak)) continue;
    for (const Trade* part : parts) sum.runs.insert(sum.runs.end(), part->runs.begin(), part->runs.end());
    add_point(all, std::move(sum));
  }
  return all;
}

}  // namespace lowtide
