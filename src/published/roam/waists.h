// waists.h: ops that run at the same step in any order, and the segments between them. Of ROAM, which calls them
// memory-insensitive operators.
//
// A task is a waist if every other one must run before it or after it. What is held there is the same in any order, so
// the order of each segment can be chosen by itself.
//
//   0 -> 1 -> 3 -> 4        waists 0, 3, 4; segments {0}, {1, 2, 3}, {4}
//   0 -> 2 -> 3                                         (case "Diamond" of roam_test.cc)
//
// Only the forward and the backward pass are looked at, for updates can run whenever their gradient is there. So can
// what makes a gradient and nothing else, and what is made to be looked at, like the loss: none of that has a fixed
// step, and nothing depends on it. It comes along in the segment in which it can run first.
//
// Not in the paper, but in captured steps: what merely feeds the passes counts as if it ran right before the first task
// that needs it. That is what is not behind their first task (of those that read the batch, if any does, the one with
// the most tasks behind it), like a mask that is drawn or a target that is shifted; and in a training step what is
// neither before nor behind their center (the task with the most tasks on both sides, about the loss), like a power of
// an activation that the backward pass takes again.
#pragma once

#include <vector>

#include "order/update_branches.h"

namespace lowtide {

struct Waists {
  std::vector<Task> tasks;             // in the order in which they run
  std::vector<std::uint32_t> segment;  // by task: s runs after waist s - 1, and not after waist s if that needs it
  std::vector<bool> comes_along;       // by task: see above
  std::size_t num_segments() const { return tasks.size() + 1; }  // the last may be empty

  // Steps of the forward and backward pass, by task: as soon as all that must come before has run, and as late as all
  // that must come after it allows. What comes along (see above) counts as late as the waist behind its segment.
  std::vector<std::uint32_t> earliest;
  std::vector<std::uint32_t> latest;
  std::uint32_t steps = 0;
  std::uint32_t step_before(std::size_t number) const {  // of the waist before a segment
    return number == 0 ? 0 : earliest[tasks[number - 1]];
  }
};

// n * edges / 512 steps, for n tasks.
Waists find_waists(const Graph& graph, const Tasks& tasks, const UpdateBranches& updates);

// One segment and no waist.
Waists no_waists(const Tasks& tasks);

}  // namespace lowtide
