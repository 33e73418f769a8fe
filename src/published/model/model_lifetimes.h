// model_lifetimes.h: the part of an integer program that says when tasks run and buffers are held. Of MODeL.
//
// The equations of the paper, for a task t, a buffer e and a step s; run is 1 where t runs, held where e was made
// before and is still there:
//
//   2    held(e, s) <= held(e, s - 1) + run(maker of e, s - 1)      nothing is held that is not there
//   3    the sum of run(t, s) over all s is 1                       every task runs once
//   4    run(t, s) <= held(e, s) for every e that t uses            what is used is there
//   10   run(t, s) only within the span of t
//   11   held(e, s) only within the useful life of e
//   12   held(e, s) = 1 while it is needed
//
// Equation 1, not both made and held, follows from 2 and 3. Equation 5, that a task makes all of its buffers at once,
// is in there being one run for all of them. Added to the paper: dependencies that no buffer shows; kept buffers; and,
// with one task a step, that no two share one.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "published/model/spans.h"
#include "published/solver/integer_program.h"

namespace lowtide {

class ModelLifetimes {
 public:
  // How many variables it takes.
  static std::size_t num_variables(const StepSpans& spans);

  ModelLifetimes(const Tasks& tasks, const StepSpans& spans, StepWidth width, IntegerProgram& program);

  // None: it cannot be so at that step.
  std::optional<VariableId> run(Task task, std::size_t step) const;
  std::optional<VariableId> held(Held buffer, std::size_t step) const;

  // By the steps at which they run; those of one step in program order.
  Order decode(std::span<const double> values) const;

  // The values of its variables, one task a step in this order. All others are left as they are.
  void encode(const Tasks& tasks, std::span<const OpId> order, std::vector<double>& values) const;

 private:
  using Terms = std::vector<IntegerProgram::Term>;

  void add_variables(IntegerProgram& program);
  void hold_buffers(const Tasks& tasks, IntegerProgram& program) const;
  void keep_dependencies(const Tasks& tasks, IntegerProgram& program) const;
  void separate_tasks(IntegerProgram& program) const;
  void add_runs(Terms& terms, Task task, std::size_t end, double factor) const;

  const StepSpans& spans_;
  std::vector<VariableId> first_run_;   // by task: that of the first step of its span
  std::vector<VariableId> first_held_;  // by buffer: that of the second step of its useful life
};

}  // namespace lowtide
