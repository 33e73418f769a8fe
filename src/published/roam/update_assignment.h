// update_assignment.h: in which segment each weight update runs. Equations 4 to 6 of ROAM.
//
// As soon as its gradient is there, an update would free it; but its own buffers come on top of the activations, most
// of which are alive when the backward pass begins. It is put off to the next segment, and on, while
//
//   the activations that may be alive there (5) and alpha times the gradient (6) are more than all activations (4),
//   and its gradient is more than `delay_radius` times as large as buffers are on average.
//
// Not in the paper: an update that has no buffer of its own, like that of a fused optimizer, only frees, and is not put
// off.
//
// What an activation is, says turn.h. Alpha says how many times its gradient an update holds at least, in planned
// buffers: 3 for the unfused Adam of the paper, gradient included.
#pragma once

#include <optional>

#include "published/roam/turn.h"

namespace lowtide {

struct UpdateAssignmentOptions {
  // The paper leaves it to experience. Chosen on captured steps of its models: from 2 to 10 hardly differ where
  // gradients are dropped, all better than 1; where they are kept, each is worse than the one below it.
  double delay_radius = 2;
  std::optional<double> alpha = {};  // else derived from the branch with the largest gradient
};

// How many times its gradient the branch with the largest gradient takes at least, by itself. 0 without branches.
double derive_alpha(const Tasks& tasks, const UpdateBranches& updates);

// By task: its segment. Only those of updates differ from those of `waists`, and none is earlier.
std::vector<std::uint32_t> assign_updates(const Tasks& tasks, const UpdateBranches& updates, const Waists& waists,
                                          const Turn& turn, const UpdateAssignmentOptions& options);

}  // namespace lowtide
