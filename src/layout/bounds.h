// bounds.h: heights below which no packing ends.
//
// Each comes with the pieces that it follows from: these alone already reach that high.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/pieces.h"

namespace lowtide {

struct Bound {
  Units height = 0;
  std::vector<std::uint32_t> pieces;
};

// The highest load of any section.
Bound most_alive(const Pieces& problem);

// Pieces whose offsets are multiples of one alignment share no block of that many units: what is left of a piece's last
// block is of use to others only.
Bound aligned_blocks(const Pieces& problem);

// The highest end of a piece that is fixed.
Bound fixed_ends(const Pieces& problem);

struct BoundAlgorithm {
  LayoutBound known_as;
  Bound (*run)(const Pieces& problem);
};
std::span<const BoundAlgorithm> bounds();

// The highest of all.
Bound best_bound(const Pieces& problem);

}  // namespace lowtide
