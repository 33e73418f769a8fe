// repeats.h: which ops may run again, in the same step and with the same result.
//
// A repeat writes to memory of its own, so the op must have planned results, and no other effect: not on another rank,
// and not on a resident buffer, unless it can leave that out (batch norm and its running statistics). Explicit edges
// order an op for reasons that nobody knows here: what has one runs once. Random ops may run again, with the state that
// the generator had at their first run.
#pragma once

#include <vector>

#include "lowtide/graph.h"

namespace lowtide {

class Repeats {
 public:
  explicit Repeats(const Graph& graph);

  bool allowed(OpId op) const { return allowed_[op.index()]; }

  // A repeat of `op` leaves this buffer alone: it neither reads nor changes it.
  bool skips(OpId op, BufferId buffer) const;

 private:
  const Graph* graph_;
  std::vector<bool> allowed_;  // by op
};

}  // namespace lowtide
