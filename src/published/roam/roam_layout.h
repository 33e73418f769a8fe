// roam_layout.h: order and offsets of ROAM (Shu et al.), to compare with.
//
// Each leaf of the subgraph tree (roam_tree.h) is laid out by itself, side by side, with its activations at the bottom,
// what is freed last lowest. A buffer that lives in several leaves belongs to one of them: to that which frees it, if
// it was made in the forward pass; to that which makes it, if in the backward pass. Then the leaves are put together:
// each stands on the activations of those around it, which are alive while it runs.
//
//   offset            . . . . .
//                     . inner .            temporary buffers of the outer leaf reuse what the inner one needs
//        + - - - - - -+ - - - +- - - - -
//        |    activations of the outer leaf       base of the inner leaf
//      0 +------------------------------> step
//
// The paper's equation 9 counts from the leaf with the shortest lives on, its text and figure 5 from that with the
// longest; this does what the text says. Where two buffers of different leaves then lie upon each other, the one that
// is no activation, is smaller or lives shorter is taken out, and all of these are placed again around the rest.
#pragma once

#include <vector>

#include "lowtide/layout.h"
#include "lowtide/limit.h"
#include "published/roam/roam.h"
#include "published/roam/roam_tree.h"

namespace lowtide {

struct RoamPlanOptions {
  RoamOptions order = {};
  std::size_t node_limit = 500;  // ops of a leaf, if it can be divided
};

struct RoamPlan {
  RoamOrder order;
  RoamTree tree;
  Layout layout;             // of items_of() this order
  std::size_t placed_again;  // items
};

// Half of the work is for the order.
Result<RoamPlan> roam_plan(const Graph& graph, const RoamPlanOptions& options, Work& work);

}  // namespace lowtide
