#include "published/checkmate/stretches.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace lowtide {
namespace {

class Making {
 public:
  Making(const Reruns& reruns, std::vector<Position> bounds) : r_(reruns) {
    made_.bounds = std::move(bounds);
    for (Stretch stretch = 0; stretch + 1 < made_.bounds.size(); ++stretch) {
      stretch_of_.insert(stretch_of_.end(), made_.bounds[stretch + 1] - made_.bounds[stretch], stretch);
    }
    num_stretches_ = made_.bounds.size() - 1;
  }

  Stretches made() && {
    find_units();
    group_items();
    find_operands();
    find_inner();
    find_wants();
    return std::move(made_);
  }

 private:
  using Pairs = std::vector<std::pair<std::size_t, std::uint32_t>>;

  Stretch again_in(Unit unit) const {
    return r_.repeatable[unit] ? stretch_of_[r_.members[unit].back()] : Stretches::kNone;
  }

  void find_units() {
    std::vector<Unit> units;
    for (Unit unit = 0; unit < r_.num_units(); ++unit) {
      if (r_.repeatable[unit]) units.push_back(unit);
    }
    std::ranges::stable_sort(units, {}, [&](Unit unit) { return r_.members[unit].back(); });
    Pairs pairs;
    made_.cost_again.assign(num_stretches_, 0);
    made_.again_until.assign(num_stretches_, static_cast<Stretch>(num_stretches_ - 1));
    for (const Unit unit : units) {
      const Stretch stretch = again_in(unit);
      pairs.emplace_back(stretch, unit);
      made_.cost_again[stretch] += r_.unit_cost[unit];
      Stretch& last = made_.again_until[stretch];
      while (made_.bounds[last] > r_.until[unit]) --last;
    }
    made_.units = Lists<Unit>::group(num_stretches_, pairs);
  }

  void group_items() {
    std::vector<std::vector<Stretch>> first_users(r_.num_items());
    std::vector<std::vector<Stretch>> again_users(r_.num_items());
    std::vector<Stretch> made_in(r_.num_items());
    for (Position p = 0; p < r_.num_ops(); ++p) {
      for (const Item item : r_.makes[p]) made_in[item] = stretch_of_[p];
      for (const Item item : r_.takes[p]) {
        if (stretch_of_[p] != made_in[item]) first_users[item].push_back(stretch_of_[p]);
      }
    }
    for (Stretch stretch = 0; stretch < num_stretches_; ++stretch) {
      for (const Unit unit : made_.units[stretch]) {
        for (const Item item : r_.needs[unit]) {
          if (again_in(r_.made_by[item]) != stretch) again_users[item].push_back(stretch);
        }
      }
    }
    const auto make_unique = [](std::vector<Stretch>& stretches) {
      std::ranges::sort(stretches);
      stretches.erase(std::ranges::unique(stretches).begin(), stretches.end());
    };
    value_of_.assign(r_.num_items(), Stretches::kNone);
    std::map<std::tuple<Stretch, Stretch, bool, std::vector<Stretch>, std::vector<Stretch>>, StretchValue> known;
    Pairs takes, takes_again;
    for (Item item = 0; item < r_.num_items(); ++item) {
      make_unique(first_users[item]);
      make_unique(again_users[item]);
      if (first_users[item].empty() && again_users[item].empty() && !r_.kept[item]) continue;
      const Stretch again = again_in(r_.made_by[item]);
      const auto [place, is_new] =
          known.try_emplace({made_in[item], again, r_.kept[item], first_users[item], again_users[item]},
                            static_cast<StretchValue>(made_.size.size()));
      const StretchValue value = value_of_[item] = place->second;
      if (is_new) {
        made_.size.push_back(0);
        made_.made_in.push_back(made_in[item]);
        made_.made_again_in.push_back(again);
        const Stretch last = first_users[item].empty() ? made_in[item] : first_users[item].back();
        made_.used_until.push_back(r_.kept[item] ? static_cast<Stretch>(num_stretches_) : last);
        for (const Stretch stretch : first_users[item]) takes.emplace_back(stretch, value);
        for (const Stretch stretch : again_users[item]) takes_again.emplace_back(stretch, value);
      }
      made_.size[value] += r_.size[item];
    }
    made_.takes = Lists<StretchValue>::group(num_stretches_, takes);
    made_.takes_again = Lists<StretchValue>::group(num_stretches_, takes_again);
  }

  void find_operands() {
    Pairs makes, makes_again;
    for (StretchValue value = 0; value < made_.size.size(); ++value) {
      makes.emplace_back(made_.made_in[value], value);
      if (made_.made_again_in[value] != Stretches::kNone) makes_again.emplace_back(made_.made_again_in[value], value);
    }
    made_.makes = Lists<StretchValue>::group(num_stretches_, makes);
    made_.makes_again = Lists<StretchValue>::group(num_stretches_, makes_again);
  }

  void find_inner() {
    std::vector<Position> ops;
    for (Stretch stretch = 0; stretch < num_stretches_; ++stretch) {
      ops.clear();
      for (Position p = made_.bounds[stretch]; p < made_.bounds[stretch + 1]; ++p) ops.push_back(p);
      made_.inner.push_back(most_inner(ops));
      ops.clear();
      for (const Unit unit : made_.units[stretch]) {
        ops.insert(ops.end(), r_.members[unit].begin(), r_.members[unit].end());
      }
      made_.inner_again.push_back(most_inner(ops));
    }
  }

  std::int64_t most_inner(const std::vector<Position>& ops) const {
    std::map<Item, std::size_t> last_use;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (const Item item : r_.makes[ops[i]]) last_use[item] = i;
      for (const Item item : r_.takes[ops[i]]) last_use[item] = i;
    }
    const auto bytes_of = [&](Item item) { return value_of_[item] == Stretches::kNone ? r_.size[item] : 0; };
    std::int64_t bytes = 0;
    std::int64_t most = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (const Item item : r_.makes[ops[i]]) bytes += bytes_of(item);
      most = std::max(most, bytes + r_.workspace[ops[i]]);
      for (const Item item : r_.makes[ops[i]]) bytes -= last_use[item] == i ? bytes_of(item) : 0;
      for (const Item item : r_.takes[ops[i]]) bytes -= last_use[item] == i ? bytes_of(item) : 0;
    }
    return most;
  }

  void find_wants() {
    made_.wanted_until = made_.used_until;
    for (auto stretch = static_cast<Stretch>(num_stretches_); stretch-- > 0;) {
      if (made_.units[stretch].empty()) continue;
      Stretch last = stretch;
      for (const StretchValue value : made_.makes_again[stretch]) last = std::max(last, made_.wanted_until[value]);
      made_.again_until[stretch] = std::min(made_.again_until[stretch], last);
      for (const StretchValue value : made_.takes_again[stretch]) {
        made_.wanted_until[value] = std::max(made_.wanted_until[value], made_.again_until[stretch]);
      }
    }
  }

  const Reruns& r_;
  std::size_t num_stretches_;
  std::vector<Stretch> stretch_of_;     // by position
  std::vector<StretchValue> value_of_;  // by item, or kNone
  Stretches made_;
};

}  // namespace

std::int64_t Stretches::peak() const {
  std::int64_t most = 0;
  for (Stretch stretch = 0; stretch < count(); ++stretch) {
    std::int64_t bytes = inner[stretch];
    for (StretchValue value = 0; value < size.size(); ++value) {
      if (made_in[value] == stretch || (made_in[value] < stretch && stretch <= used_until[value])) bytes += size[value];
    }
    most = std::max(most, bytes);
  }
  return most;
}

Stretches to_stretches(const Reruns& reruns, std::vector<Position> bounds) {
  return Making(reruns, std::move(bounds)).made();
}

}  // namespace lowtide
