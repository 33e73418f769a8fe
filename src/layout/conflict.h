// conflict.h: the fewest pieces that show that a capacity is too small.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/pieces.h"
#include "lowtide/limit.h"

namespace lowtide {

// Of `pieces`, which do not fit below the capacity, a part that does not either. If the work suffices none of it can be
// left out: without any one of them the others fit.
std::vector<std::uint32_t> smallest_conflict(const Pieces& problem, Units capacity, std::vector<std::uint32_t> pieces,
                                             Work& work);

}  // namespace lowtide
