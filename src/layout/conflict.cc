#include "layout/conflict.h"

#include <algorithm>
#include <utility>

#include "layout/algorithms.h"
#include "layout/valley_search.h"

namespace lowtide {

// Leaves out one after the other, the smallest first: they are the least likely to matter.
std::vector<std::uint32_t> smallest_conflict(const Pieces& problem, Units capacity, std::vector<std::uint32_t> pieces,
                                             Work& work) {
  constexpr std::uint64_t kStepsAPiece = 20'000'000;
  std::vector<std::uint32_t> tried = pieces;
  std::ranges::sort(tried, {}, [&](std::uint32_t p) { return std::pair(problem.pieces[p].size, p); });
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
