#include "trade/reruns.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/groups.h"
#include "graph/dependencies.h"
#include "graph/reachability.h"
#include "rewrite/repeats.h"

namespace lowtide {
namespace {

constexpr std::uint32_t kTrunk = 1000;         // of the ops, all but one in so many, and one more
constexpr std::uint32_t kComparable = 10;      // of the ops, all but one in so many
constexpr std::int64_t kWorthDropping = 4000;  // a candidate has at least this part of the peak

std::int64_t count_of(Bytes bytes) {
  return static_cast<std::int64_t>(bytes.count());
}

class Making {
 public:
  Making(const Graph& graph, std::span<const OpId> order) : graph_(graph) {
    made_.order.assign(order.begin(), order.end());
    position_of_.resize(graph.num_ops());
    for (Position p = 0; p < order.size(); ++p) position_of_[order[p].index()] = p;
  }

  Reruns made() && {
    number_items();
    list_operands();
    find_costs();
    find_turn();
    group_units();
    find_repeatable();
    find_candidates();
    return std::move(made_);
  }

 private:
  static constexpr Item kNone = std::numeric_limits<Item>::max();

  BufferId buffer_of(VersionId version) const { return graph_.version(version).buffer; }
  BufferId buffer_of(ValueId value) const { return buffer_of(graph_.value(value).version); }

  void number_items() {
    item_of_.assign(graph_.num_buffers(), kNone);
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      const Buffer buffer = graph_.buffer(id);
      if (!buffer.planned() || buffer.size == Bytes(0) || !graph_.version(buffer.versions.front()).writer) continue;
      item_of_[id.index()] = static_cast<Item>(made_.size.size());
      made_.size.push_back(count_of(buffer.size));
      made_.kept.push_back(buffer.kept);
      made_.buffer.push_back(id);
    }
  }

  void list_operands() {
    std::vector<Item> takes, changes, makes;
    const auto add = [&](std::vector<Item>& list, BufferId buffer) {
      const Item item = item_of_[buffer.index()];
      if (item != kNone && std::ranges::find(list, item) == list.end()) list.push_back(item);
    };
    for (const OpId id : made_.order) {
      const Op op = graph_.op(id);
      takes.clear(), changes.clear(), makes.clear();
      for (const VersionId write : op.writes) {
        add(graph_.version(write).index == 0 ? makes : changes, buffer_of(write));
      }
      for (const ValueId read : op.reads) add(takes, buffer_of(read));
      for (const Item item : changes) add(takes, made_.buffer[item]);
      std::erase_if(takes, [&](Item item) { return std::ranges::find(makes, item) != makes.end(); });
      made_.takes.add(takes);
      made_.changes.add(changes);
      made_.makes.add(makes);
      std::vector<ItemReuse> reuses;
      for (const Reuse& reuse : op.reuses) {
        const Item from = item_of_[reuse.from.index()];
        if (from != kNone) reuses.push_back({from, item_of_[reuse.to.index()]});
      }
      std::ranges::stable_sort(reuses, {}, &ItemReuse::to);
      made_.reuses.add(reuses);
      made_.workspace.push_back(count_of(op.workspace));
      made_.backward.push_back(op.flags.backward);
    }
  }

  void find_costs() {
    for (const OpId id : made_.order) made_.cost.push_back(static_cast<std::int64_t>(graph_.op(id).cost.count()));
    made_.total_cost = std::accumulate(made_.cost.begin(), made_.cost.end(), std::int64_t{0});
    made_.costs_are_times = made_.total_cost > 0;
    if (made_.costs_are_times) return;
    for (Position p = 0; p < made_.num_ops(); ++p) {
      for (const Item item : made_.takes[p]) made_.cost[p] += made_.size[item];
      for (const Item item : made_.makes[p]) made_.cost[p] += made_.size[item];
      made_.total_cost += made_.cost[p];
    }
  }

  // Where the most bytes wait for later ops, among the ops that as good as every other one must run before or after:
  // not where gradients wait for their update. An op or two to the side must not move it into the middle of a layer.
  // Where there is more than one loss, or a branch to the side, most others.
  void find_turn() {
    const Dependencies needs = dependencies(graph_);
    const std::vector<std::uint32_t> before = count_relatives(needs, Side::ancestors);
    const std::vector<std::uint32_t> after = count_relatives(needs, Side::descendants);
    std::uint32_t most = 0;
    for (std::size_t op = 0; op < before.size(); ++op) most = std::max(most, before[op] + after[op]);
    std::vector<std::size_t> users_left(made_.num_items());
    for (Position p = 0; p < made_.num_ops(); ++p) {
      for (const Item item : made_.takes[p]) ++users_left[item];
    }
    struct Fullest {
      std::uint32_t relatives;  // at least
      Position turn = 0;
      std::int64_t waiting = -1;
    };
    Fullest trunk{most - std::min(most, 1 + most / kTrunk)}, nearly{most - most / kComparable};
    std::int64_t waiting = 0;
    for (Position p = 0; p < made_.num_ops(); ++p) {
      for (const Item item : made_.makes[p]) waiting += users_left[item] > 0 ? made_.size[item] : 0;
      for (const Item item : made_.takes[p]) waiting -= --users_left[item] == 0 ? made_.size[item] : 0;
      const std::size_t op = made_.order[p].index();
      for (Fullest* fullest : {&trunk, &nearly}) {
        if (before[op] + after[op] >= fullest->relatives && waiting > fullest->waiting) {
          *fullest = {fullest->relatives, p + 1, waiting};
        }
      }
    }
    made_.turn = trunk.waiting >= nearly.waiting - nearly.waiting / 5 ? trunk.turn : nearly.turn;
  }

  void group_units() {
    Groups groups(made_.num_ops());
    std::vector<Position> maker(made_.num_items());
    for (Position p = 0; p < made_.num_ops(); ++p) {
      for (const Item item : made_.makes[p]) maker[item] = p;
      for (const Item item : made_.changes[p]) groups.join(maker[item], p);
    }
    made_.unit.resize(made_.num_ops());
    std::vector<std::pair<std::size_t, Position>> members;
    for (Position p = 0; p < made_.num_ops(); ++p) {
      const Position first = groups.find(p);
      if (first == p) {
        made_.unit[p] = static_cast<Unit>(made_.unit_cost.size());
        made_.unit_cost.push_back(0);
      }
      made_.unit[p] = made_.unit[first];
      made_.unit_cost[made_.unit[p]] += made_.cost[p];
      members.emplace_back(made_.unit[p], p);
    }
    made_.members = Lists<Position>::group(made_.num_units(), members);
    for (Item item = 0; item < made_.num_items(); ++item) made_.made_by.push_back(made_.unit[maker[item]]);
    for (Unit unit = 0; unit < made_.num_units(); ++unit) {
      std::vector<Item> needs;
      for (const Position p : made_.members[unit]) {
        for (const Item item : made_.makes[p]) made_.gives.push(item);
        for (const Item item : made_.takes[p]) {
          if (made_.made_by[item] != unit && std::ranges::find(needs, item) == needs.end()) needs.push_back(item);
        }
      }
      made_.gives.close();
      made_.needs.add(needs);
    }
  }

  void find_repeatable() {
    const Repeats repeats(graph_);
    made_.until.assign(made_.num_units(), static_cast<Position>(made_.num_ops()));
    for (Unit unit = 0; unit < made_.num_units(); ++unit) {
      bool fine = !made_.gives[unit].empty();
      for (const Item item : made_.gives[unit]) fine &= !made_.kept[item];
      for (const Position p : made_.members[unit]) {
        const OpId id = made_.order[p];
        fine &= repeats.allowed(id);
        for (const ValueId read : graph_.op(id).reads) {
          if (fine && !repeats.skips(id, buffer_of(read))) fine = stays(unit, graph_.value(read).version);
        }
      }
      made_.may_run_again.push_back(fine);
      made_.repeatable.push_back(fine && made_.members[unit].back() < made_.turn);
    }
  }

  // Is this content there, or made again as a whole, whenever the unit runs again? A resident one is until it changes.
  bool stays(Unit unit, VersionId read) {
    const Version version = graph_.version(read);
    const Buffer buffer = graph_.buffer(version.buffer);
    if (version.index + 1 == buffer.versions.size()) return true;
    if (buffer.planned()) {
      const Item item = item_of_[version.buffer.index()];
      return item == kNone || made_.made_by[item] == unit;
    }
    const OpId writer = *graph_.version(buffer.versions[version.index + 1]).writer;
    made_.until[unit] = std::min(made_.until[unit], position_of_[writer.index()]);
    return true;
  }

  void find_candidates() {
    made_.used_late.assign(made_.num_items(), false);
    for (Position p = made_.turn; p < made_.num_ops(); ++p) {
      for (const Item item : made_.takes[p]) made_.used_late[item] = true;
    }
    made_.peak = Evaluation(made_).of(each_once(made_)).peak;
    made_.candidates = candidates_of(made_);
  }

  const Graph& graph_;
  std::vector<Position> position_of_;  // by op
  std::vector<Item> item_of_;          // by buffer
  Reruns made_;
};

}  // namespace

Reruns to_reruns(const Graph& graph, std::span<const OpId> order) {
  return Making(graph, order).made();
}

std::vector<Item> candidates_of(const Reruns& reruns) {
  std::vector<Item> candidates;
  for (Position p = 0; p < reruns.num_ops(); ++p) {
    for (const Item item : reruns.makes[p]) {
      if (reruns.repeatable[reruns.made_by[item]] && reruns.size[item] >= reruns.peak / kWorthDropping) {
        candidates.push_back(item);
      }
    }
  }
  return candidates;
}

Runs each_once(const Reruns& reruns) {
  Runs runs;
  for (Position p = 0; p < reruns.num_ops(); ++p) runs.push_back({p, false});
  return runs;
}

void LiveItems::begin_behind_all() {
  begin([&](Item item) { return reruns_->kept[item]; });
}

template <typename Visit>
Outcome Evaluation::follow(const Runs& runs, std::int64_t target, const Visit& visit) {
  Outcome outcome;
  live_.begin_behind_all();
  for (std::size_t i = runs.size(); i-- > 0;) {
    const auto [op, again] = runs[i];
    if (again) {
      if (!live_.wants(op)) {
        visit(i, std::int64_t{-1});
        continue;
      }
      outcome.cost += reruns_->cost[op];
    }
    const std::int64_t held = live_.pass(op);
    outcome.peak = std::max(outcome.peak, held);
    if (held > target) outcome.excess += held - target;
    visit(i, held);
  }
  return outcome;
}

Outcome Evaluation::of(const Runs& runs, std::int64_t target) {
  return follow(runs, target, [](std::size_t, std::int64_t) {});
}

Outcome Evaluation::of(const Runs& runs, std::vector<std::int64_t>& held) {
  held.resize(runs.size());
  return follow(runs, std::numeric_limits<std::int64_t>::max(),
                [&](std::size_t i, std::int64_t bytes) { held[i] = bytes; });
}

Runs needed_runs(const Reruns& reruns, const Runs& runs) {
  std::vector<std::int64_t> held;
  Evaluation(reruns).of(runs, held);
  Runs needed;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (held[i] >= 0) needed.push_back(runs[i]);
  }
  return needed;
}

}  // namespace lowtide
