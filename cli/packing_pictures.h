// packing_pictures.h: packed buffers as pictures, time across and addresses up.
#pragma once

#include <span>
#include <string>

#include "lowtide/buffers.h"
#include "lowtide/units.h"

namespace lowtide::cli {

struct PackedBuffers {
  std::span<const BufferRow> rows;  // each with its offset
  Bytes arena;
};

// A line across the picture, such as the capacity.
struct Mark {
  std::string name;
  Bytes height;
};

// For a terminal: 80 columns and some 25 lines. A buffer is an area of one letter, and another one beside it has
// another. What fills no place is not seen, and is counted in the last line.
std::string packing_map(const PackedBuffers& packed);

// An SVG document: a rectangle for each buffer, whose title says its id, size, life and offset. Of very many buffers
// only the largest are drawn, and a line says so.
std::string packing_svg(const PackedBuffers& packed, const Mark& mark);

// The time and the addresses that a picture shows: from the first life's begin to the last one's end.
struct Window {
  std::uint64_t first = 0;
  std::uint64_t last = 1;

  double width() const { return static_cast<double>(last - first); }
};
Window window_of(std::span<const BufferRow> rows);

inline bool is_visible(const BufferRow& row) {
  return row.size > Bytes(0) && row.lower < row.upper;
}

}  // namespace lowtide::cli
