#include "published/model/model_program.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/words.h"
#include "order/bounds.h"
#include "published/model/model_lifetimes.h"

namespace lowtide {
namespace {

// More variables are taken if there is so much work for each.
constexpr std::uint64_t kVariables = 10'000;
constexpr std::uint64_t kStepsAVariable = 1'500'000;
// All sizes together. The solver takes 10^-6 of a switch for nothing: with more units, that could be a whole one.
constexpr std::int64_t kMostUnits = std::int64_t{1} << 19;
constexpr double kTolerance = 1e-6;

std::int64_t unit_of(const Tasks& tasks) {
  std::int64_t common = 0;
  std::int64_t total = 0;
  for (const std::vector<std::int64_t>* const sizes : {&tasks.size, &tasks.workspace}) {
    for (const std::int64_t size : *sizes) {
      common = std::gcd(common, size);
      total += size;
    }
  }
  return std::max({std::int64_t{1}, common, (total + kMostUnits - 1) / kMostUnits});
}

// Rows: at each step no more than the peak.
void limit_steps(const Tasks& tasks, std::int64_t unit, const ModelLifetimes& lifetimes, VariableId peak,
                 IntegerProgram& program) {
  std::vector<std::int64_t> begun(tasks.count());  // by task, in units: its workspace and what it makes
  for (Task task = 0; task < tasks.count(); ++task) begun[task] = tasks.workspace[task] / unit;
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    begun[tasks.users[buffer].front()] += tasks.size[buffer] / unit;
  }
  for (std::size_t step = 0; step < tasks.count(); ++step) {
    std::vector<IntegerProgram::Term> terms = {{peak, -1}};
    const auto add = [&](std::optional<VariableId> variable, std::int64_t units) {
      if (variable && units > 0) terms.push_back({*variable, static_cast<double>(units)});
    };
    for (Task task = 0; task < tasks.count(); ++task) add(lifetimes.run(task, step), begun[task]);
    for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
      add(lifetimes.held(buffer, step), tasks.size[buffer] / unit);
    }
    program.add_row(terms, -std::numeric_limits<double>::infinity(), 0);
  }
}

}  // namespace

Result<ProvenOrder> model_order(const Tasks& tasks, StepWidth width, Work& work) {
  if (tasks.count() == 0) return ProvenOrder{{}, 0, 0};
  const StepSpans spans = to_spans(tasks, width);
  const std::size_t variables = ModelLifetimes::num_variables(spans);
  const std::uint64_t most_variables = std::max(kVariables, work.left() / kStepsAVariable);
  if (variables > most_variables) {
    return Error{ErrorCode::work_limit,
                 words("model_program takes graphs of at most ", most_variables, " variables; this one, of ",
                       tasks.count(), " ops that hold ", tasks.size.size(), " buffers, has ", variables)};
  }
  const Order known = first_to_last(tasks.count());
  const std::int64_t unit = unit_of(tasks);
  const std::int64_t least = operands(tasks, work);
  const auto in_units = [&](std::int64_t bytes) { return static_cast<double>(bytes / unit); };

  IntegerProgram program;
  const VariableId peak =
      program.add_variable(IntegerProgram::Kind::continuous, in_units(least), in_units(peak_of(tasks, known)), 1);
  const ModelLifetimes lifetimes(tasks, spans, width, program);
  limit_steps(tasks, unit, lifetimes, peak, program);
  std::vector<double> start(program.num_variables());
  start[peak.index()] = in_units(peak_of(tasks, known));
  lifetimes.encode(tasks, known, start);
  const Answer answer = minimize(program, work, start);
  assert(answer.outcome != Answer::Outcome::infeasible);
  if (!answer.has_values()) {
    return Error{ErrorCode::work_limit, words("model_program found no order of ", tasks.count(), " ops, in ", variables,
                                              " variables, with the work and the time allowed")};
  }
  ProvenOrder made{lifetimes.decode(answer.values), 0, least};
  made.peak = peak_of(tasks, made.order);
  const double proven = std::ceil(answer.bound - kTolerance * static_cast<double>(kMostUnits));
  if (proven > 0) {
    made.bound = std::max(least, static_cast<std::int64_t>(std::min(proven, in_units(made.peak))) * unit);
  }
  return made;
}

}  // namespace lowtide
