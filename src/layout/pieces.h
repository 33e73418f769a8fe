// pieces.h: a packing problem reduced to what decides it.
//
// Steps between which nothing that matters happens are one: a section is a set of items that live together and to which
// no other item can be added (a maximal clique of their lives). There are at most as many sections as items, every
// piece covers a run of them, and two pieces live together where their runs meet. Sizes and offsets are counted in the
// largest unit that all of them are multiples of.
//
//   step      0  1  2  3  4  5          sections      0     1
//   a         [-------)                 a             [--)
//   b               [--------)          b             [--------)
//   c                  [--)             c                   [--)
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/layout.h"

namespace lowtide {

using Units = std::int64_t;

constexpr Bytes kMostBytes(std::uint64_t{1} << 62);  // of all items together, and of any offset that is given

struct Piece {
  int begin;  // sections [begin, end)
  int end;
  Units size;
  Units alignment = 1;
  Units fixed = -1;  // where it must lie, or -1
  std::uint32_t item = 0;
  std::uint32_t steps = 0;     // of its life
  std::uint64_t rounding = 0;  // bytes by which its size was rounded up to whole units
};

struct Pieces {
  std::vector<Piece> pieces;  // by their first section; of those, in the order of the items
  std::vector<Units> load;    // by section: the units of all pieces over it
  Bytes unit{1};
  Bytes rounding;         // the most by which any size was rounded up
  Bytes most_alive;       // bytes at once, as the items have them
  std::size_t items = 0;  // how many the problem has, those that need no place included

  int num_sections() const { return static_cast<int>(load.size()); }
  Units highest_load() const { return load.empty() ? 0 : *std::ranges::max_element(load); }
  Layout layout(std::span<const Units> offsets, std::span<const LayoutItem> from) const;
  // A bound on the top as one on the arena: whatever ends highest may have been rounded up.
  Bytes bound_in_bytes(Units bound) const {
    return std::max(Bytes(static_cast<std::uint64_t>(bound) * unit.count()) - rounding, most_alive);
  }
};

// E107 if the sizes do not add up within 62 bits.
Result<Pieces> to_pieces(std::span<const LayoutItem> items);

// Only the pieces that are asked for (by index), on sections of their own.
Pieces subset(const Pieces& whole, std::span<const std::uint32_t> chosen);

// The pieces by the parts that nothing joins: no piece lives together with one of another part. In the order of their
// sections.
std::vector<std::vector<std::uint32_t>> parts_of(const Pieces& problem);

inline Units align_up(Units offset, Units alignment) {
  if (alignment == 1) return offset;
  return (offset + alignment - 1) / alignment * alignment;
}

}  // namespace lowtide
