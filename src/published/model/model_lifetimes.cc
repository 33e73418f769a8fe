#include "published/model/model_lifetimes.h"

#include <algorithm>

namespace lowtide {
namespace {

VariableId after(VariableId first, std::size_t count) {
  return VariableId(first.index() + count);
}

}  // namespace

std::size_t ModelLifetimes::num_variables(const StepSpans& spans) {
  std::size_t count = 0;
  for (const StepRange& run : spans.run) count += run.size();
  for (const StepRange& useful : spans.useful) count += useful.size() - 1;
  return count;
}

ModelLifetimes::ModelLifetimes(const Tasks& tasks, const StepSpans& spans, StepWidth width, IntegerProgram& program)
    : spans_(spans) {
  add_variables(program);
  hold_buffers(tasks, program);
  keep_dependencies(tasks, program);
  if (width == StepWidth::single) separate_tasks(program);
}

std::optional<VariableId> ModelLifetimes::run(Task task, std::size_t step) const {
  if (!spans_.run[task].contains(step)) return std::nullopt;
  return after(first_run_[task], step - spans_.run[task].begin);
}

std::optional<VariableId> ModelLifetimes::held(Held buffer, std::size_t step) const {
  const StepRange& useful = spans_.useful[buffer];
  if (!useful.contains(step) || step == useful.begin) return std::nullopt;
  return after(first_held_[buffer], step - useful.begin - 1);
}

void ModelLifetimes::add_variables(IntegerProgram& program) {
  for (const StepRange& run : spans_.run) {
    first_run_.push_back(VariableId(program.num_variables()));
    for (std::size_t step = run.begin; step < run.end; ++step) program.add_switch();
  }
  for (Held buffer = 0; buffer < spans_.useful.size(); ++buffer) {
    first_held_.push_back(VariableId(program.num_variables()));
    for (std::size_t step = spans_.useful[buffer].begin + 1; step < spans_.useful[buffer].end; ++step) {
      program.add_variable(IntegerProgram::Kind::whole, spans_.needed[buffer].contains(step) ? 1 : 0, 1);
    }
  }
}

void ModelLifetimes::hold_buffers(const Tasks& tasks, IntegerProgram& program) const {
  Terms terms;
  const auto add = [&](std::optional<VariableId> variable, double factor) {
    if (variable) terms.push_back({*variable, factor});
  };
  const auto end_row = [&](double lower, double upper) {
    program.add_row(terms, lower, upper);
    terms.clear();
  };
  for (Task task = 0; task < spans_.run.size(); ++task) {
    add_runs(terms, task, spans_.run[task].end, 1);
    end_row(1, 1);
  }
  for (Held buffer = 0; buffer < spans_.useful.size(); ++buffer) {
    const StepRange& useful = spans_.useful[buffer];
    const Task maker = tasks.users[buffer].front();
    for (std::size_t step = useful.begin + 1; step < useful.end; ++step) {
      add(held(buffer, step), 1);
      add(held(buffer, step - 1), -1);
      add(run(maker, step - 1), -1);
      end_row(-kUnlimited, 0);
    }
    for (const Task user : tasks.users[buffer].subspan(1)) {
      for (std::size_t step = spans_.run[user].begin; step < spans_.run[user].end; ++step) {
        add(run(user, step), 1);
        add(held(buffer, step), -1);
        end_row(-kUnlimited, 0);
      }
    }
    if (tasks.kept[buffer]) {
      add(run(maker, useful.end - 1), 1);
      add(held(buffer, useful.end - 1), 1);
      end_row(1, 1);
    }
  }
}

// Where it runs before `end`.
void ModelLifetimes::add_runs(Terms& terms, Task task, std::size_t end, double factor) const {
  for (std::size_t step = spans_.run[task].begin; step < std::min(end, spans_.run[task].end); ++step) {
    terms.push_back({*run(task, step), factor});
  }
}

// What a task needs of the makers of what it uses, equation 4 says.
void ModelLifetimes::keep_dependencies(const Tasks& tasks, IntegerProgram& program) const {
  const auto is_shown = [&](Task before, Task task) {
    return std::ranges::any_of(tasks.touched[task], [&](Held buffer) { return tasks.users[buffer].front() == before; });
  };
  for (Task task = 0; task < tasks.count(); ++task) {
    for (const OpId needed : tasks.needs.predecessors[task]) {
      const auto before = static_cast<Task>(needed.index());
      if (is_shown(before, task)) continue;
      for (std::size_t step = spans_.run[task].begin; step < std::min(spans_.run[before].end, spans_.run[task].end);
           ++step) {
        Terms terms;
        add_runs(terms, task, step + 1, 1);
        add_runs(terms, before, step, -1);
        program.add_row(terms, -kUnlimited, 0);
      }
    }
  }
}

void ModelLifetimes::separate_tasks(IntegerProgram& program) const {
  for (std::size_t step = 0; step < spans_.run.size(); ++step) {
    Terms terms;
    for (Task task = 0; task < spans_.run.size(); ++task) {
      if (const std::optional<VariableId> variable = run(task, step)) terms.push_back({*variable, 1});
    }
    program.add_row(terms, 1, 1);
  }
}

Order ModelLifetimes::decode(std::span<const double> values) const {
  std::vector<std::size_t> step_of;
  Order order;
  for (Task task = 0; task < spans_.run.size(); ++task) {
    const std::span<const double> runs = values.subspan(first_run_[task].index(), spans_.run[task].size());
    step_of.push_back(spans_.run[task].begin + static_cast<std::size_t>(std::ranges::max_element(runs) - runs.begin()));
    order.push_back(OpId(task));
  }
  std::ranges::stable_sort(order, {}, [&](OpId op) { return step_of[op.index()]; });
  return order;
}

void ModelLifetimes::encode(const Tasks& tasks, std::span<const OpId> order, std::vector<double>& values) const {
  std::vector<std::size_t> step_of(order.size());
  for (std::size_t step = 0; step < order.size(); ++step) {
    const auto task = static_cast<Task>(order[step].index());
    step_of[task] = step;
    values[run(task, step)->index()] = 1;
  }
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    const std::span<const Task> users = tasks.users[buffer];
    std::size_t last = tasks.kept[buffer] ? order.size() - 1 : 0;
    for (const Task user : users) last = std::max(last, step_of[user]);
    for (std::size_t step = step_of[users.front()] + 1; step <= last; ++step) {
      values[held(buffer, step)->index()] = 1;
    }
  }
}

}  // namespace lowtide
