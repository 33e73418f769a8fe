// budget_checks.h: whether a draft keeps the budgets of its options, and the error if it does not.
#pragma once

#include "lowtide/plan.h"
#include "lowtide/status.h"
#include "plan/traded.h"

namespace lowtide {

// In bytes already, not as a share; all there is, without one.
Bytes memory_budget(const PlanOptions& options);

bool keeps_memory(const Draft& draft, const PlanOptions& options);
bool keeps_latency(const Draft& draft, const PlanOptions& options);

// With a latency budget alone, the smallest plan within it is looked for.
bool asks_for_smallest(const PlanOptions& options);

// It keeps what the other does not; or it is smaller.
bool is_better(const Draft& one, const Draft& other, const PlanOptions& options);

// E301 with the peak and who holds it, and E302.
Status check_memory(const Graph& graph, const Draft& draft, const PlanOptions& options);
Status check_latency(const Draft& draft, const PlanOptions& options);

}  // namespace lowtide
