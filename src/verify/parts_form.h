// parts_form.h: are these parts at all? What the symbolic execution takes for granted of them.
#pragma once

#include <string>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/plan.h"

namespace lowtide {

// Does each step run its op in whole, or a part that one of the op's axes has? E201 if not, or if an edge orders the
// op.
class StepPartCheck {
 public:
  StepPartCheck(const Graph& graph, const Plan& plan);

  Status check(StepIndex step) const;

 private:
  const Graph& graph_;
  const Plan& plan_;
  std::vector<bool> in_edge_;  // by op
};

// Does the block hold the whole of its buffer, or a part of it? E201 if not. The buffer is one of the graph's.
Status check_block_part(const Graph& graph, const Plan& plan, BlockId id);

// What a part needs; null if the axis has no such count.
const PartCount* find_count(const Axis& axis, std::uint32_t count);

// "part 0 of 2"
std::string describe_part(const Part& part);

}  // namespace lowtide
