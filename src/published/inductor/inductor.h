// inductor.h: the three orders among which the memory pass of PyTorch's Inductor chooses, to compare with.
//
//   dfs    each task right after those that it needs, found depth first; where there is a choice, those first that
//   touch
//          the fewest bytes
//   bfs    first in, first out: of what is ready, that whose needs ran the earliest
//   lpmf   least peak memory first: of what is ready and raises no peak so far, that which leaves the fewest bytes; if
//          all of it does, that which raises it least
//
// Ties go to program order. Bytes are those of tasks.h: resident buffers count for nothing, workspaces only in lpmf.
#pragma once

#include "order/tasks.h"

namespace lowtide {

Order dfs_order(const Tasks& tasks);
Order bfs_order(const Tasks& tasks);
Order lpmf_order(const Tasks& tasks);

}  // namespace lowtide
