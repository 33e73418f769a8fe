// makers.h: graphs written down in a line.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/graph.h"

namespace lowtide {

// An op that writes a buffer of its own, of so many bytes, and reads those of others.
struct Maker {
  std::uint64_t size;
  std::vector<std::size_t> reads = {};
  std::uint64_t workspace = 0;
  std::uint32_t region = 0;
  OpFlags flags = {};
  std::uint64_t cost = 0;  // in nanoseconds
};

inline constexpr OpFlags kBackward{.backward = true};

Graph graph_of(std::span<const Maker> makers);

}  // namespace lowtide
