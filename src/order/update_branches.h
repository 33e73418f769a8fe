// update_branches.h: the ops that turn gradients into new parameters, apart from those that make the gradients.
//
// A task belongs to an update if nothing but updates comes behind it, and it writes a parameter or optimizer state, or
// reads or changes what such a task wrote. So what makes a gradient, or clips it, does not: it reads nothing that is
// new.
//
//   dw = matmul(x, dy)           no       made from the backward pass
//   m.lerp_(dw)                  yes      changes optimizer state
//   d = sqrt(v); d.add_(eps)     yes      reads the new v; behind it there is only
//   w.addcdiv_(m, d)             yes      changes a parameter
//
// Whatever forward and backward passes need, they need from each other: no task outside needs one of an update.
//
// Updates that share a gradient or another planned buffer, or that read what the other wrote, are one branch. A task
// without planned buffers that serves several branches, like the counter of steps, is one by itself.
#pragma once

#include <span>
#include <vector>

#include "lowtide/graph.h"
#include "order/tasks.h"

namespace lowtide {

struct UpdateBranches {
  std::vector<bool> in_update;  // by task
  Lists<Task> branches;         // each in program order; by their first task
  // By branch: the bytes it reads that forward and backward pass wrote, in planned and resident buffers. Its gradient.
  std::vector<std::int64_t> gradient;
};

UpdateBranches update_branches(const Graph& graph, const Tasks& tasks);

// The given order, with each task of an update that touches no planned buffer right before the first that needs it:
// AdamW's decay of a weight waits for the gradient. What reads that weight may run again until then.
Order late_decay_order(const Graph& graph, const Tasks& tasks, std::span<const OpId> order);

// The given order, with each task of an update as soon as it can run, but for those that wait as above.
Order early_updates_order(const Graph& graph, const Tasks& tasks, std::span<const OpId> order);

// The given order, with the updates behind all others, one branch after another.
Order late_updates_order(const Graph& graph, const Tasks& tasks, std::span<const OpId> order);

}  // namespace lowtide
