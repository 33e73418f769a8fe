#include "layout/conflict.h"

#include <algorithm>
#include <span>
#include <utility>

#include "layout/algorithms.h"
#include "layout/valley_search.h"

namespace lowtide {
namespace {

// If the pieces are too many bytes at one moment, only those: the largest, as many as it takes.
std::vector<std::uint32_t> too_many_at_once(const Pieces& problem, Units capacity,
                                            std::span<const std::uint32_t> smallest_first) {
  const Pieces part = subset(problem, smallest_first);
  const auto full = std::ranges::find_if(part.load, [&](Units load) { return load > capacity; });
  if (full == part.load.end()) return {};
  const auto section = static_cast<int>(full - part.load.begin());
  std::vector<bool> over(problem.pieces.size());
  for (const Piece& piece : part.pieces) over[piece.item] = piece.begin <= section && section < piece.end;
  Units load = *full;
  std::vector<std::uint32_t> needed;
  for (const std::uint32_t p : smallest_first) {
    if (!over[p]) continue;
    if (load - problem.pieces[p].size > capacity) {
      load -= problem.pieces[p].size;
    } else {
      needed.push_back(p);
    }
  }
  return needed;
}

}  // namespace

// Leaves out one after the other, the smallest first: they are the least likely to matter.
std::vector<std::uint32_t> smallest_conflict(const Pieces& problem, Units capacity, std::vector<std::uint32_t> pieces,
                                             Work& work) {
  constexpr std::uint64_t kStepsAPiece = 20'000'000;
  std::vector<std::uint32_t> tried = pieces;
  std::ranges::sort(tried, {}, [&](std::uint32_t p) { return std::pair(problem.pieces[p].size, p); });
  if (std::vector<std::uint32_t> at_once = too_many_at_once(problem, capacity, tried); !at_once.empty()) {
    pieces = std::move(at_once);  // with alignments fewer may do
  }
  for (const std::uint32_t left_out : tried) {
    if (work.left() == 0) break;
    std::vector<std::uint32_t> others = pieces;
    if (std::erase(others, left_out) == 0) continue;
    const Pieces part = subset(problem, others);
    const SearchResult found = with_part(
        work, kStepsAPiece, [&](Work& steps) { return search_packing(part, capacity, {.prove = true}, steps); });
    if (found.verdict != Verdict::infeasible) continue;
    pieces.clear();
    for (const std::uint32_t p : found.conflict) pieces.push_back(part.pieces[p].item);
  }
  return pieces;
}

}  // namespace lowtide
