// turn.h: where the forward pass ends, and what it leaves to the backward pass.
//
// The turn is behind the segment after which the most is held for the forward and backward pass. What was made up to
// there and is used after it is an activation; everything else is temporary. Gradients of weights, which wait for their
// update, are not held for the passes.
//
//   segment   0   1   2   3   4   5
//   h0        [-------------------]       turn behind 2: there h0, h1 and h2 are held, the activations
//   h1            [-----------]
//   h2                [---]               g, the gradient of an activation, is temporary
//   g                     [---]
#pragma once

#include <optional>

#include "published/roam/waists.h"

namespace lowtide {

struct PassSpan {
  std::uint32_t made;  // in this segment
  std::uint32_t used;  // last by a task that is none of an update; `made` for what comes along makes
};

struct Turn {
  std::vector<PassSpan> spans;           // by buffer
  std::optional<std::uint32_t> segment;  // the last of the forward pass; none if nothing is held from one to the next
  std::vector<bool> activation;          // by buffer
};

Turn find_turn(const Tasks& tasks, const UpdateBranches& updates, const Waists& waists);

}  // namespace lowtide
