#include "published/model/spans.h"

#include <algorithm>

#include "graph/reachability.h"

namespace lowtide {
namespace {

struct Around {
  std::vector<std::uint32_t> before;  // by task: how many steps at least
  std::vector<std::uint32_t> after;
};

Around longest_chains(const Dependencies& needs, std::size_t tasks) {
  Around around{std::vector<std::uint32_t>(tasks), std::vector<std::uint32_t>(tasks)};
  for (Task task = 0; task < tasks; ++task) {  // program order respects every dependency
    for (const OpId needed : needs.predecessors[task]) {
      around.before[task] = std::max(around.before[task], around.before[needed.index()] + 1);
    }
  }
  for (std::size_t task = tasks; task-- > 0;) {
    for (const OpId next : needs.successors[task]) {
      around.after[task] = std::max(around.after[task], around.after[next.index()] + 1);
    }
  }
  return around;
}

}  // namespace

StepSpans to_spans(const Tasks& tasks, StepWidth width) {
  const std::size_t steps = tasks.count();
  const Around around = width == StepWidth::multi ? longest_chains(tasks.needs, steps)
                                                  : Around{count_relatives(tasks.needs, Side::ancestors),
                                                           count_relatives(tasks.needs, Side::descendants)};
  StepSpans spans;
  for (Task task = 0; task < steps; ++task) {
    spans.run.push_back({around.before[task], steps - around.after[task]});
  }
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    const StepRange made = spans.run[tasks.users[buffer].front()];
    std::size_t last_use = 0;   // at the latest
    std::size_t first_end = 0;  // when all have run at the earliest
    for (const Task user : tasks.users[buffer]) {
      last_use = std::max(last_use, spans.run[user].end);
      first_end = std::max(first_end, spans.run[user].begin + 1);
    }
    if (tasks.kept[buffer]) last_use = first_end = steps;
    spans.useful.push_back({made.begin, last_use});
    spans.needed.push_back({made.end, std::max(made.end, first_end)});
  }
  return spans;
}

}  // namespace lowtide
