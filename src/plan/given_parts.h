// given_parts.h: the plan of a step in which these ops run again and in parts, and no others.
#pragma once

#include "fission/splits.h"
#include "lowtide/graph.h"
#include "lowtide/plan.h"
#include "lowtide/status.h"

namespace lowtide {

// As the options ask, but for parts. Verified.
Result<Plan> plan_given_parts(const Graph& graph, const Splitting& splitting, PlanOptions options);

}  // namespace lowtide
