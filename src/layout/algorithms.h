// algorithms.h: every layout algorithm, one function each; registry.cc gives them names.
#pragma once

#include <algorithm>
#include <vector>

#include "base/words.h"
#include "layout/pieces.h"
#include "lowtide/layout.h"
#include "lowtide/limit.h"

namespace lowtide {

using Offsets = std::vector<Units>;  // by piece

// E403 if `work` does not suffice, E107 if addresses do not.
Result<Offsets> first_fit(const Pieces& problem, Work& work);
Result<Offsets> greedy_by_size(const Pieces& problem, Work& work);
Result<Offsets> tightest_by_size(const Pieces& problem, Work& work);
Result<Offsets> longest_lived(const Pieces& problem, Work& work);
Result<Offsets> skyline(const Pieces& problem, Work& work);

struct Packer {
  std::string_view name;
  std::string_view description;
  Result<Offsets> (*run)(const Pieces& problem, Work& work);
};
// The cheapest first.
std::span<const Packer> packers();

// lay_out() of layout.h with this work; steps and time limit of the options are not looked at.
Result<NamedLayout> lay_out(std::span<const LayoutItem> items, const LayoutOptions& options, Work& work);

// What has no bytes or no life needs no place.
inline bool needs_place(const LayoutItem& item) {
  return item.size > Bytes(0) && item.begin < item.end;
}

inline Error does_not_fit(std::size_t item, Bytes size) {
  return {ErrorCode::size_overflow, words("item ", item, " of ", size,
                                          " bytes does not fit beside those that live with it: addresses end at 2^62")};
}

inline Error out_of_work(std::string_view algorithm, const Pieces& problem) {
  return {ErrorCode::work_limit,
          words(algorithm, " of ", problem.pieces.size(), " items takes more steps than are left")};
}

// Where the highest piece ends, to the byte.
inline Bytes arena_of(const Pieces& problem, std::span<const Units> offsets) {
  std::uint64_t arena = 0;
  for (std::size_t p = 0; p < offsets.size(); ++p) {
    const auto top = static_cast<std::uint64_t>(offsets[p] + problem.pieces[p].size);
    arena = std::max(arena, top * problem.unit.count() - problem.pieces[p].rounding);
  }
  return Bytes(arena);
}

// Where the highest piece ends, in whole units.
inline Units top_of(const Pieces& problem, std::span<const Units> offsets) {
  Units top = 0;
  for (std::size_t p = 0; p < offsets.size(); ++p) top = std::max(top, offsets[p] + problem.pieces[p].size);
  return top;
}

}  // namespace lowtide
