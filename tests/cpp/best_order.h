// best_order.h: the smallest peak of any order of a few tasks, by going through every set that can have run.
#pragma once

#include <cstdint>
#include <vector>

#include "order/tasks.h"

namespace lowtide {

// At most 20 tasks: there are up to 2^n sets. Knows nothing of peak_of() and its counters; what is held follows from
// the set that has run alone.
std::int64_t best_peak(const Tasks& tasks);

// By task: the least that any order holds while it runs.
std::vector<std::int64_t> least_held(const Tasks& tasks);

}  // namespace lowtide
