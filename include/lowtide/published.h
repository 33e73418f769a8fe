// published.h: the planners of papers, to compare with. In the target lowtide::published, which needs HiGHS and oneTBB.
//
//   PlanOptions options{.order = "roam"};
//   options.others = published();
#pragma once

#include "lowtide/algorithms.h"

namespace lowtide {

// Orders of LESCEA, Inductor, ROAM and MODeL; layouts of Sekiyama et al. and MODeL; recompute of Checkmate.
const Algorithms& published();

}  // namespace lowtide
