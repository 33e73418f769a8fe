// arrange.h: an order, laid out: a plan but for who asked for it.
#pragma once

#include <span>
#include <string_view>

#include "lowtide/layout.h"
#include "lowtide/lifetimes.h"
#include "lowtide/order.h"
#include "lowtide/plan.h"
#include "plan/limits.h"

namespace lowtide {

struct Arranged {
  Plan plan;  // all but what each step reads and writes
  Lifetimes lives;
};

// The layout that the options ask for. Whatever the time that is left: a packer that needs little has the last word.
Result<NamedLayout> lay_out_in_time(std::span<const LayoutItem> items, const PlanOptions& options,
                                    const Limits& limits);

// One that is within `room` will do, and none is looked for where that is proven too small: then, and where none was
// found, this is the best that little work gives.
Result<NamedLayout> lay_out_within(std::span<const LayoutItem> items, const PlanOptions& options, const Limits& limits,
                                   Bytes room);

// Of a plan that this library makes.
Provenance provenance_of(std::string_view order, std::string_view layout);

// `name` is that of the order; the layout is the one that the options ask for.
Result<Arranged> arrange(const Graph& graph, std::string_view name, BoundedOrder found, const PlanOptions& options,
                         const Limits& limits);

// Completes the plan: block i stands in for buffer i wherever that is read or written.
void bind_operands(const Graph& graph, Plan& plan);

}  // namespace lowtide
