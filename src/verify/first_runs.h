// first_runs.h: which steps are the first run of their op, and which run it again.
//
//   steps of one op    whole             whole              first, again
//                      part 0 of 2       part 1 of 2        one first run
//                      part 0 of 2       part 0 of 2        first, again; part 1 is still to come
//                      part 0 of 2       part 1 of 4        first, again: another count
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "lowtide/plan.h"

namespace lowtide {

class FirstRuns {
 public:
  explicit FirstRuns(std::size_t num_ops) : runs_(num_ops) {}

  // The op's next step. Is it of its first run?
  bool add(OpId op, const StepPart& step);

  bool is_complete(OpId op) const { return runs_[op.index()].missing == 0 && runs_[op.index()].begun; }
  bool has_begun(OpId op) const { return runs_[op.index()].begun; }
  // Of one that has begun and is not complete: the first part that no step runs. Looks at all parts that have run.
  StepPart first_missing(OpId op) const;

 private:
  struct Run {
    bool begun = false;
    std::uint32_t axis = 0;
    std::uint32_t count = 1;
    std::uint32_t missing = 0;  // parts that have not run
  };
  std::vector<Run> runs_;                           // by op
  std::set<std::pair<OpId, std::uint32_t>> parts_;  // that have run, of first runs in parts
};

}  // namespace lowtide
