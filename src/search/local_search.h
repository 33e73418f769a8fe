// local_search.h: lower peaks from a choice, one drop after the other.
#pragma once

#include <cstdint>

#include "search/front.h"

namespace lowtide {

// Drops one more item at a time, the one that takes the most from what is held above the target for the cost that it
// adds, until nothing is held above it or nothing helps. No choice costs more than `limit`.
void drop_towards(Explorer& explorer, Choice choice, std::int64_t target, std::int64_t limit);

}  // namespace lowtide
