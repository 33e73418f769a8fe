// walk.h: random states of a step, and the orders that the search gives them beside those that a full search of orders
// finds: what the paper measures of its incremental scheduling.
#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/status.h"
#include "search/rules.h"

namespace lowtide {

struct WalkedState {
  std::int64_t peak = 0;       // in the order that the search gives it
  std::int64_t full_peak = 0;  // in the best order that is found for its graph, one part of a region after the other
  std::int64_t free_peak = 0;  // in the best order in which parts may mix
  double seconds = 0.0;        // for the first: to change the state before it, and to reorder it
  double full_seconds = 0.0;   // for the second
};

// `changes` changes at random, one after the other; after every `per_start` of them from the step as it is again.
Result<std::vector<WalkedState>> walk_states(const Graph& graph, std::size_t changes, std::size_t per_start,
                                             std::uint64_t seed, const RuleOptions& rules);

}  // namespace lowtide
