// magis.h: MAGIS (Chen et al., ASPLOS 2024): what runs again and what runs in parts, found by one search.
//
// The search is ours too (search/best_first.h): here it has the last word, with the constants of the paper, and nothing
// is traded afterwards. What differs from the paper:
//
//   Graphs are captured from PyTorch, with in-place ops, views and saved tensors. What runs again is a unit: all ops
//   that write a buffer. Regions in parts do not nest; nor do they in the code that the authors published. Of graphs
//   that were seen before, exact keys are kept in place of a hash by Weisfeiler and Lehman: what runs again for whom,
//   and which regions are in how many parts. What runs again comes right before its first user, and a region in one
//   piece; else the order is kept, as the published code does. The paper reorders around each change. There are no
//   rules for swapping, and none that merge or rearrange ops (of TASO), which would change bits.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

#include "lowtide/graph.h"
#include "lowtide/plan.h"
#include "lowtide/status.h"
#include "search/best_first.h"

namespace lowtide {

struct MagisOptions {
  // One of the two: the other is to be low. Over resident bytes and peak, and over the time of the step.
  std::optional<Bytes> memory = {};
  std::optional<Nanos> latency = {};
  RuleOptions rules = {};
  bool reorders = false;
  std::chrono::milliseconds time_limit = std::chrono::minutes(3);
  std::size_t threads = 1;
};

struct MagisAnswer {
  Plan plan;        // in the order that was found, laid out and verified
  Figures figures;  // as the search sees them: the peak without resident bytes
  StateSearchCounts counts;
};

Result<MagisAnswer> magis(const Graph& graph, const MagisOptions& options);

}  // namespace lowtide
