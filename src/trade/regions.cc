#include "trade/regions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "order/algorithms.h"
#include "trade/reruns.h"

namespace lowtide {
namespace {

class Regions {
 public:
  explicit Regions(const Graph& graph)
      : graph_(graph), r_(to_reruns(graph, first_to_last(graph.num_ops()))), dropped_(r_.num_items()) {
    find_dropped();
    find_last_uses();
  }

  // Every op once, and again what is dropped, where it is needed.
  std::vector<OpId> steps() {
    while (!make_steps()) {
    }
    return std::move(steps_);
  }

 private:
  Op op_at(Position p) const { return graph_.op(r_.order[p]); }

  void find_dropped() {
    std::vector<std::uint32_t> regions;  // by unit: that of all its ops; 0 if they differ
    for (Unit unit = 0; unit < r_.num_units(); ++unit) {
      const std::span<const Position> members = r_.members[unit];
      const std::uint32_t region = op_at(members.front()).region;
      const auto is_other = [&](Position p) { return op_at(p).region != region; };
      regions.push_back(std::ranges::any_of(members, is_other) ? 0 : region);
      for (const Item item : r_.gives[unit]) dropped_[item] = regions[unit] != 0 && r_.may_run_again[unit];
    }
    for (Position p = 0; p < r_.num_ops(); ++p) {
      const Op op = op_at(p);
      for (const Item item : r_.takes[p]) {
        if (op.region != regions[r_.made_by[item]] && !op.flags.backward) dropped_[item] = false;
      }
    }
  }

  void find_last_uses() {
    there_.resize(r_.num_items());
    std::vector<bool> went_backward(r_.num_items());
    for (Position p = 0; p < r_.num_ops(); ++p) {
      const bool backward = op_at(p).flags.backward;
      for (const Item item : r_.makes[p]) there_[item] = p;
      for (const Item item : r_.takes[p]) {
        if (backward) went_backward[item] = true;
        if (!went_backward[item]) there_[item] = p;
      }
    }
  }

  // False if something must stay that was to be dropped.
  bool make_steps() {
    steps_.clear();
    made_again_.assign(r_.num_items(), false);
    for (Position p = 0; p < r_.num_ops(); ++p) {
      for (const Item item : r_.takes[p]) {
        if (is_missing(item, p) && !make_again(item, p)) return false;
      }
      steps_.push_back(r_.order[p]);
    }
    return true;
  }

  bool is_missing(Item item, Position p) const { return dropped_[item] && !made_again_[item] && p > there_[item]; }

  bool make_again(Item wanted, Position slot) {
    std::vector<Unit> units = {r_.made_by[wanted]};
    for (std::size_t i = 0; i < units.size(); ++i) {
      for (const Item item : r_.needs[units[i]]) {
        const bool is_new = std::ranges::find(units, r_.made_by[item]) == units.end();
        if (is_missing(item, slot) && is_new) units.push_back(r_.made_by[item]);
      }
    }
    std::ranges::sort(units, {}, [&](Unit unit) { return r_.members[unit].back(); });
    for (const Unit unit : units) {
      if (slot > r_.until[unit]) return let_stay(unit);
      for (const Item item : r_.needs[unit]) {
        if (is_missing(item, slot)) return let_stay(r_.made_by[item]);  // each needs something of the other
      }
      for (const Position member : r_.members[unit]) steps_.push_back(r_.order[member]);
      for (const Item item : r_.gives[unit]) made_again_[item] = true;
    }
    return true;
  }

  bool let_stay(Unit unit) {
    for (const Item item : r_.gives[unit]) dropped_[item] = false;
    return false;
  }

  const Graph& graph_;
  Reruns r_;
  std::vector<bool> dropped_;     // by item
  std::vector<Position> there_;   // by item: its last use before a backward pass begins to use it
  std::vector<bool> made_again_;  // by item: and there since
  std::vector<OpId> steps_;
};

}  // namespace

Result<std::optional<Rewritten>> with_regions(const Graph& graph) {
  bool has_regions = false;
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) has_regions |= graph.op(id).region != 0;
  if (!has_regions) return std::optional<Rewritten>();
  const std::vector<OpId> steps = Regions(graph).steps();
  if (steps.size() == graph.num_ops()) return std::optional<Rewritten>();
  Result<Rewritten> rewritten = run_again(graph, steps);
  if (!rewritten.ok()) return rewritten.error();
  return std::optional(*std::move(rewritten));
}

}  // namespace lowtide
