#include "published/checkmate/checkmate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "published/checkmate/stretches.h"
#include "published/solver/integer_program.h"
#include "trade/repeated_units.h"
#include "trade/stages.h"

namespace lowtide {
namespace {

constexpr std::size_t kMostOps = 24;    // that are stretches by themselves
constexpr std::size_t kMostStages = 8;  // otherwise
constexpr int kBudgets = 16;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kScale = 1000;  // what all costs, and the budget, are in the program

std::vector<Position> stretch_bounds(const Reruns& reruns) {
  std::vector<Position> bounds;
  const auto end = static_cast<Position>(reruns.num_ops());
  if (is_exact(reruns)) {
    for (Position p = 0; p <= end; ++p) bounds.push_back(p);
    return bounds;
  }
  const Stages stages = find_stages(reruns, kCoarse, kMostStages);
  bounds = stages.bounds;
  bounds.insert(bounds.end(), stages.comes_at.begin(), stages.comes_at.end());
  bounds.push_back(end);
  std::ranges::sort(bounds);
  bounds.erase(std::ranges::unique(bounds).begin(), bounds.end());
  return bounds;
}

class CheckmateProgram {
 public:
  using Term = IntegerProgram::Term;

  CheckmateProgram(const Stretches& stretches, std::int64_t budget, std::int64_t total_cost)
      : s_(stretches),
        budget_(kScale),
        byte_(kScale / static_cast<double>(budget)),
        unit_of_cost_(kScale / static_cast<double>(std::max<std::int64_t>(total_cost, 1))) {
    for (Stretch stage = 0; stage < s_.count(); ++stage) add_variables(stage);
    for (Stretch stage = 0; stage < s_.count(); ++stage) add_stage(stage);
  }

  // The pairs (stage, stretch that runs again in it).
  std::optional<std::vector<std::pair<Stretch, Stretch>>> solve(Work& work) const {
    if (!is_possible_) return std::nullopt;
    const Answer answer = minimize(program_, work);
    if (!answer.has_values()) return std::nullopt;
    std::vector<std::pair<Stretch, Stretch>> again;
    for (const auto& [place, variable] : runs_again_) {
      if (answer.values[variable.index()] > 0.5) again.push_back(place);
    }
    return again;
  }

 private:
  using Place = std::pair<Stretch, std::uint32_t>;  // a stage, and a stretch or value

  static std::optional<VariableId> find(const std::map<Place, VariableId>& variables, Stretch stage,
                                        std::uint32_t what) {
    const auto found = variables.find({stage, what});
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<VariableId> run_again(Stretch stage, Stretch stretch) const {
    return find(runs_again_, stage, stretch);
  }
  std::optional<VariableId> made_again(Stretch stage, StretchValue value) const {
    return run_again(stage, s_.made_again_in[value]);
  }
  std::optional<VariableId> held(Stretch stage, StretchValue value) const { return find(held_, stage, value); }

  bool is_kept(StretchValue value) const { return s_.used_until[value] == s_.count(); }
  double bytes(StretchValue value) const { return byte_ * static_cast<double>(s_.size[value]); }

  void add_variables(Stretch stage) {
    for (Stretch stretch = 0; stretch < stage; ++stretch) {
      if (s_.units[stretch].empty() || stage > s_.again_until[stretch]) continue;
      runs_again_[{stage, stretch}] = program_.add_switch(unit_of_cost_ * static_cast<double>(s_.cost_again[stretch]));
    }
    for (StretchValue value = 0; value < s_.size.size(); ++value) {
      if (s_.made_in[value] < stage && stage <= s_.wanted_until[value]) held_[{stage, value}] = program_.add_switch();
    }
  }

  void add_stage(Stretch stage) {
    for (StretchValue value = 0; value < s_.size.size(); ++value) hold_what_is_there(stage, value);
    for (const StretchValue value : s_.takes[stage]) need(stage, value, stage, std::nullopt);
    for (StretchValue value = 0; stage + 1 == s_.count() && value < s_.size.size(); ++value) {
      if (is_kept(value) && s_.made_in[value] < stage) need(stage, value, stage, std::nullopt);
    }
    std::vector<Term> start;
    for (StretchValue value = 0; value < s_.size.size(); ++value) {
      if (const auto variable = held(stage, value)) start.push_back({*variable, bytes(value)});
    }
    VariableId used = add_used(start);
    for (Stretch stretch = 0; stretch < stage; ++stretch) {
      const std::optional<VariableId> again = run_again(stage, stretch);
      if (!again) continue;
      for (const StretchValue value : s_.takes_again[stretch]) need(stage, value, stretch, *again);
      double made = 0;
      for (const StretchValue value : s_.makes_again[stretch]) made += bytes(value);
      const double inner = byte_ * static_cast<double>(s_.inner_again[stretch]);
      program_.add_row({{used, 1}, {*again, made + inner}}, -kInfinity, budget_);
      std::vector<Term> after = {{used, 1}, {*again, made}};
      for (const StretchValue value : s_.takes_again[stretch]) let_go(stage, value, stretch, *again, after);
      for (const StretchValue value : s_.makes_again[stretch]) let_go(stage, value, stretch, *again, after);
      used = add_used(after);
    }
    double own = byte_ * static_cast<double>(s_.inner[stage]);
    for (const StretchValue value : s_.makes[stage]) own += bytes(value);
    program_.add_row({{used, 1}}, -kInfinity, budget_ - own);
    if (own > budget_) is_possible_ = false;
  }

  // A variable that is at least the sum of these terms.
  VariableId add_used(std::vector<Term> terms) {
    const VariableId used = program_.add_variable(IntegerProgram::Kind::continuous, 0, budget_);
    terms.push_back({used, -1});
    program_.add_row(terms, -kInfinity, 0);
    return used;
  }

  // Only what is held or made in a stage is held in the next.
  void hold_what_is_there(Stretch stage, StretchValue value) {
    const std::optional<VariableId> next = held(stage + 1, value);
    if (!next || s_.made_in[value] >= stage) return;
    std::vector<Term> terms = {{*next, 1}};
    if (const auto before = held(stage, value)) terms.push_back({*before, -1});
    if (const auto again = made_again(stage, value)) terms.push_back({*again, -1});
    program_.add_row(terms, -kInfinity, 0);
  }

  // A stretch that runs again, if it does, or the stage's own one, finds the value held or made again before.
  void need(Stretch stage, StretchValue value, Stretch stretch, std::optional<VariableId> who) {
    std::vector<Term> terms;
    if (who) terms.push_back({*who, -1});
    if (const auto there = held(stage, value)) terms.push_back({*there, 1});
    const auto again = made_again(stage, value);
    if (again && s_.made_again_in[value] < stretch) terms.push_back({*again, 1});
    program_.add_row(terms, who ? 0 : 1, kInfinity);
  }

  void let_go(Stretch stage, StretchValue value, Stretch stretch, VariableId again, std::vector<Term>& after) {
    if (std::ranges::find(s_.takes[stage], value) != s_.takes[stage].end()) return;
    if (is_kept(value)) return;
    const VariableId free = program_.add_variable(IntegerProgram::Kind::continuous, 0, 1);
    program_.add_row({{free, 1}, {again, -1}}, -kInfinity, 0);
    if (const auto further = held(stage + 1, value)) program_.add_row({{free, 1}, {*further, 1}}, -kInfinity, 1);
    for (Stretch later = stretch + 1; later < stage; ++later) {
      const std::optional<VariableId> user = run_again(stage, later);
      const std::span<const StretchValue> takes = s_.takes_again[later];
      if (!user || std::ranges::find(takes, value) == takes.end()) continue;
      program_.add_row({{free, 1}, {*user, 1}}, -kInfinity, 1);
    }
    after.push_back({free, -bytes(value)});
  }

  const Stretches& s_;
  double budget_;
  double byte_;
  double unit_of_cost_;
  bool is_possible_ = true;
  IntegerProgram program_;
  std::map<Place, VariableId> runs_again_;
  std::map<Place, VariableId> held_;
};

std::optional<Runs> cheapest_within(const Reruns& reruns, const Stretches& stretches, std::int64_t budget, Work& work) {
  const CheckmateProgram program(stretches, budget, reruns.total_cost);
  const auto again = program.solve(work);
  if (!again) return std::nullopt;
  std::vector<UnitRepeat> repeats;
  for (const auto& [stage, stretch] : *again) {
    for (const Unit unit : stretches.units[stretch]) repeats.push_back({stretches.bounds[stage], unit});
  }
  return with_repeats(reruns, repeats);
}

}  // namespace

bool is_exact(const Reruns& reruns) {
  return reruns.num_ops() <= kMostOps;
}

std::optional<Runs> checkmate_within(const Reruns& reruns, std::int64_t budget, Work& work) {
  return cheapest_within(reruns, to_stretches(reruns, stretch_bounds(reruns)), budget, work);
}

Trades checkmate_trades(const Reruns& reruns, Work& work) {
  const Stretches stretches = to_stretches(reruns, stretch_bounds(reruns));
  Collected collected(reruns, work);
  const std::int64_t peak = std::max<std::int64_t>(stretches.peak(), 1);
  for (int i = 0; i < kBudgets; ++i) {
    const std::int64_t budget = peak - i * (peak / kBudgets);
    const std::optional<Runs> runs =
        with_part(work, work.left() / static_cast<std::uint64_t>(kBudgets + 1 - i),
                  [&](Work& part) { return cheapest_within(reruns, stretches, budget, part); });
    if (runs && !collected.add(*runs)) break;
  }
  return std::move(collected).best();
}

}  // namespace lowtide
