// core_first.h: a packing of many pieces below a capacity, begun at its fullest sections.
#pragma once

#include <optional>

#include "layout/algorithms.h"

namespace lowtide {

// `share`: sections with at least this share of the bound are packed exactly, first. Nothing if no packing was found
// with this much work.
std::optional<Offsets> pack_core_first(const Pieces& problem, Units capacity, double share, Work& work);

}  // namespace lowtide
