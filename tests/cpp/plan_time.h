// plan_time.h: how long a plan takes, counted once more: for each transfer in turn, with numbers that cannot overflow.
#pragma once

#include "lowtide/graph.h"
#include "lowtide/plan.h"

namespace lowtide {

// What a part needs; null if it is the whole, or cannot be.
const PartCount* part_count(const Graph& graph, OpId op, const StepPart& step);

// Transfers that cannot be are left out.
Nanos time_of(const Graph& graph, const Plan& plan);

}  // namespace lowtide
