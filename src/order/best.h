// best.h: the order that holds the least, or nearly, and how much less none can hold.
#pragma once

#include "lowtide/limit.h"
#include "order/algorithms.h"
#include "order/tasks.h"

namespace lowtide {

// Program order and the greedy orders first, then searches between the bound and what they reach. Never worse than
// program order. `threads` change how long it takes and nothing else.
ProvenOrder best_order(const Tasks& tasks, std::size_t threads, Work& work);

}  // namespace lowtide
