#include "verify/first_runs.h"

namespace lowtide {

bool FirstRuns::add(OpId op, const StepPart& step) {
  const auto& [axis, part] = step;
  Run& run = runs_[op.index()];
  if (!run.begun) {
    run = {true, axis, part.count, part.count - 1};
    if (part.count > 1) parts_.emplace(op, part.index);
    return true;
  }
  if (part.count == 1 || run.axis != axis || run.count != part.count) return false;
  if (!parts_.emplace(op, part.index).second) return false;
  --run.missing;
  return true;
}

StepPart FirstRuns::first_missing(OpId op) const {
  const Run& run = runs_[op.index()];
  std::uint32_t index = 0;
  for (auto part = parts_.lower_bound({op, 0}); part != parts_.end() && *part == std::pair(op, index); ++part) ++index;
  return {run.axis, {index, run.count}};
}

}  // namespace lowtide
