// arrange.h: an order, laid out: a plan but for who asked for it.
#pragma once

#include <string_view>

#include "lowtide/lifetimes.h"
#include "lowtide/order.h"
#include "lowtide/plan.h"
#include "plan/limits.h"

namespace lowtide {

struct Arranged {
  Plan plan;  // all but what each step reads and writes
  Lifetimes lives;
};
// `name` is that of the order; the layout is the one that the options ask for.
Result<Arranged> arrange(const Graph& graph, std::string_view name, BoundedOrder found, const PlanOptions& options,
                         const Limits& limits);

// Completes the plan: block i stands in for buffer i wherever that is read or written.
void bind_operands(const Graph& graph, Plan& plan);

}  // namespace lowtide
