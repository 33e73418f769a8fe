// peak_report.h: where a plan needs the most, and who is alive there.
#pragma once

#include "lowtide/lifetimes.h"
#include "lowtide/plan.h"
#include "lowtide/status.h"

namespace lowtide {

// `lifetimes` are those of the plan's order in `graph`. The bound is the plan's own, and the resident bytes.
Infeasible report_peak(const Graph& graph, const Lifetimes& lifetimes, const Plan& plan);

}  // namespace lowtide
