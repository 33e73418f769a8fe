#include "trade/condensed.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace lowtide {
namespace {

class Condensing {
 public:
  explicit Condensing(const Reruns& step) : step_(step) {}

  Condensed made() && {
    find_useful_units();
    find_rows();
    number_items();
    copy_ops();
    copy_units();
    fit_workspaces();
    return std::move(made_);
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  // What makes candidates, and what may have to run again for that. The lives of all that they give and need vary.
  void find_useful_units() {
    is_useful_.assign(step_.num_units(), false);
    varies_.assign(step_.num_items(), false);
    std::vector<Unit> open;
    const auto add = [&](Item item) {
      varies_[item] = true;
      const Unit unit = step_.made_by[item];
      if (is_useful_[unit] || !step_.repeatable[unit]) return;
      is_useful_[unit] = true;
      open.push_back(unit);
    };
    for (const Item item : step_.candidates) add(item);
    while (!open.empty()) {
      const Unit unit = open.back();
      open.pop_back();
      for (const Item item : step_.gives[unit]) varies_[item] = true;
      for (const Item item : step_.needs[unit]) add(item);
    }
  }

  bool matters(Position p) const {
    const auto varies = [&](Item item) { return varies_[item]; };
    return is_useful_[step_.unit[p]] || std::ranges::any_of(step_.takes[p], varies) ||
           std::ranges::any_of(step_.makes[p], varies);
  }

  void find_rows() {
    row_of_.resize(step_.num_ops());
    std::vector<Position> row;
    const auto end_row = [&] {
      if (row.empty()) return;
      made_.reruns.order.push_back(step_.order[row.front()]);
      made_.stands_for.add(row);
      row.clear();
    };
    bool after_plain = false;
    for (Position p = 0; p < step_.num_ops(); ++p) {
      const bool plain = !matters(p);
      if (!plain || !after_plain || p == step_.turn) end_row();
      if (p == step_.turn) made_.reruns.turn = static_cast<Position>(made_.stands_for.size());
      row_of_[p] = static_cast<Position>(made_.stands_for.size());
      row.push_back(p);
      after_plain = plain;
    }
    if (step_.turn == step_.num_ops()) made_.reruns.turn = static_cast<Position>(made_.stands_for.size() + 1);
    end_row();
  }

  // Those that are only used in the row of several ops that makes them have no number.
  void number_items() {
    std::vector<Position> made_in(step_.num_items(), kNone);
    std::vector<bool> leaves(step_.kept);
    for (Position p = 0; p < step_.num_ops(); ++p) {
      for (const Item item : step_.makes[p]) {
        made_in[item] = row_of_[p];
        leaves[item] = leaves[item] || made_.stands_for[row_of_[p]].size() == 1;
      }
      for (const Item item : step_.takes[p]) leaves[item] = leaves[item] || made_in[item] != row_of_[p];
    }
    Reruns& r = made_.reruns;
    number_.assign(step_.num_items(), kNone);
    for (Item item = 0; item < step_.num_items(); ++item) {
      if (!leaves[item]) continue;
      number_[item] = static_cast<Item>(r.size.size());
      r.size.push_back(step_.size[item]);
      r.kept.push_back(step_.kept[item]);
      r.used_late.push_back(step_.used_late[item]);
      r.buffer.push_back(step_.buffer[item]);
    }
    for (const Item item : step_.candidates) r.candidates.push_back(number_[item]);
  }

  std::vector<Item> numbered(std::span<const Position> row, const Lists<Item>& lists) const {
    std::vector<Item> items;
    for (const Position p : row) {
      for (const Item item : lists[p]) {
        if (number_[item] != kNone) items.push_back(number_[item]);
      }
    }
    std::ranges::sort(items);
    const auto again = std::ranges::unique(items);
    items.erase(again.begin(), again.end());
    return items;
  }

  void copy_ops() {
    Reruns& r = made_.reruns;
    for (std::size_t at = 0; at < made_.stands_for.size(); ++at) {
      const std::span<const Position> row = made_.stands_for[at];
      const std::vector<Item> makes = numbered(row, step_.makes);
      const auto is_made = [&](Item item) { return std::ranges::binary_search(makes, item); };
      std::vector<Item> takes = numbered(row, step_.takes);
      std::vector<Item> changes = numbered(row, step_.changes);
      std::erase_if(takes, is_made);
      std::erase_if(changes, is_made);
      r.takes.add(takes);
      r.changes.add(changes);
      r.makes.add(makes);
      std::vector<ItemReuse> reuses;
      if (row.size() == 1) {
        for (const auto& [from, to] : step_.reuses[row.front()]) {
          reuses.push_back({number_[from], number_[to]});
        }
      }
      r.reuses.add(reuses);
      std::int64_t cost = 0;
      for (const Position p : row) cost += step_.cost[p];
      r.cost.push_back(cost);
      r.backward.push_back(step_.backward[row.front()]);
    }
    r.peak = step_.peak;
    r.total_cost = step_.total_cost;
    r.costs_are_times = step_.costs_are_times;
  }

  // Useful units stay as they are; any other row is one of its own.
  void copy_units() {
    Reruns& r = made_.reruns;
    r.unit.resize(r.num_ops());
    r.made_by.resize(r.num_items());
    const auto add_unit = [&](std::span<const Position> members, bool useful, Position until) {
      const auto unit = static_cast<Unit>(r.num_units());
      std::int64_t cost = 0;
      std::vector<Item> gives;
      std::vector<Item> needs;
      for (const Position p : members) {
        r.unit[p] = unit;
        cost += r.cost[p];
        gives.insert(gives.end(), r.makes[p].begin(), r.makes[p].end());
      }
      for (const Item item : gives) r.made_by[item] = unit;
      for (const Position p : members) {
        for (const Item item : r.takes[p]) {
          if (std::ranges::find(gives, item) == gives.end() && std::ranges::find(needs, item) == needs.end()) {
            needs.push_back(item);
          }
        }
      }
      r.members.add(members);
      r.gives.add(gives);
      r.needs.add(needs);
      r.unit_cost.push_back(cost);
      r.may_run_again.push_back(useful);
      r.repeatable.push_back(useful);
      r.until.push_back(until);
    };
    for (Position at = 0; at < r.num_ops(); ++at) {
      const Position first = made_.stands_for[at].front();
      const Unit unit = step_.unit[first];
      if (!is_useful_[unit]) {
        add_unit({&at, 1}, false, static_cast<Position>(r.num_ops()));
      } else if (step_.members[unit].front() == first) {
        std::vector<Position> members;
        for (const Position p : step_.members[unit]) members.push_back(row_of_[p]);
        const Position until = step_.until[unit];
        add_unit(members, true, until < step_.num_ops() ? row_of_[until] : static_cast<Position>(r.num_ops()));
      }
    }
  }

  // What varies is the same all along a row: so is the difference between what its fullest op holds and what the row's
  // own items take.
  void fit_workspaces() {
    Reruns& r = made_.reruns;
    r.workspace.assign(r.num_ops(), 0);
    std::vector<std::int64_t> held, in_step;
    Evaluation(step_).of(each_once(step_), in_step);
    Evaluation(r).of(each_once(r), held);
    for (Position at = 0; at < r.num_ops(); ++at) {
      std::int64_t most = 0;
      for (const Position p : made_.stands_for[at]) most = std::max(most, in_step[p]);
      r.workspace[at] = most - held[at];
    }
  }

  const Reruns& step_;
  std::vector<bool> is_useful_;   // by unit
  std::vector<bool> varies_;      // by item
  std::vector<Position> row_of_;  // by position
  std::vector<Item> number_;      // by item
  Condensed made_;
};

}  // namespace

Runs Condensed::spread(const Runs& runs) const {
  Runs all;
  for (const auto& [row, again] : runs) {
    for (const Position p : stands_for[row]) all.push_back({p, again});
  }
  return all;
}

Condensed condense(const Reruns& step) {
  return Condensing(step).made();
}

}  // namespace lowtide
