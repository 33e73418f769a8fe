// swapped.h: plans in which buffers leave memory for a tier and come back, so that a memory budget is kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/lifetimes.h"
#include "lowtide/order.h"
#include "lowtide/plan.h"
#include "plan/limits.h"
#include "swap/absences.h"
#include "swap/tenants.h"
#include "swap/timetable.h"

namespace lowtide {

// No plan needs less, resident bytes and arena, whatever runs again and whatever leaves.
Bytes least_with_swaps(const Graph& graph, const Swap& swap);

// How a graph could run within some bytes, each op once in the given order: who leaves and when, but not where.
class Swapping {
 public:
  // E504 if the options name a buffer to leave that is none, or a link of rate 0.
  static Result<Swapping> begin(const Graph& graph, Order order, const Swap& swap);

  // None if resident bytes and peak cannot be within `memory`.
  std::optional<Timetable> timetable(Bytes memory) const;

  // The plan of a timetable that keeps resident bytes and arena within `memory`; none if none was found.
  Result<std::optional<Plan>> plan(std::string_view order_name, Bytes memory, const PlanOptions& options,
                                   const Limits& limits) const;

 private:
  Swapping(const Graph& graph, Order order, const Swap& swap, Lifetimes lives);

  std::vector<bool> away(const Timetable& table) const;

  const Graph& graph_;
  Order order_;
  const Swap& swap_;
  Lifetimes lives_;
  Tenants tenants_;
  std::vector<Absence> absences_;
  std::vector<std::int64_t> total_;  // by step: resident bytes and those alive
  std::vector<Nanos> costs_;         // by step
};

}  // namespace lowtide
