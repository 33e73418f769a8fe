#include "layout/bounds.h"

#include <algorithm>
#include <set>

namespace lowtide {
namespace {

std::vector<std::uint32_t> over(const Pieces& problem, int section, Units alignment) {
  std::vector<std::uint32_t> found;
  for (std::uint32_t p = 0; p < problem.pieces.size(); ++p) {
    const Piece& piece = problem.pieces[p];
    if (piece.begin <= section && section < piece.end && piece.alignment % alignment == 0) found.push_back(p);
  }
  return found;
}

// Of the pieces with a multiple of this alignment.
Bound blocks_of(const Pieces& problem, Units alignment) {
  std::vector<Units> change(problem.load.size() + 1);
  Units most_unused = 0;  // of the last block of any piece
  for (const Piece& piece : problem.pieces) {
    if (piece.alignment % alignment != 0) continue;
    const Units blocks = align_up(piece.size, alignment);
    change[static_cast<std::size_t>(piece.begin)] += blocks;
    change[static_cast<std::size_t>(piece.end)] -= blocks;
    most_unused = std::max(most_unused, blocks - piece.size);
  }
  Units taken = 0;
  Units most = 0;
  int fullest = 0;
  for (int section = 0; section < problem.num_sections(); ++section) {
    taken += change[static_cast<std::size_t>(section)];
    if (taken > most) {
      most = taken;
      fullest = section;
    }
  }
  return {most - most_unused, over(problem, fullest, alignment)};
}

}  // namespace

Bound most_alive(const Pieces& problem) {
  if (problem.load.empty()) return {};
  const auto fullest = std::ranges::max_element(problem.load);
  return {*fullest, over(problem, static_cast<int>(fullest - problem.load.begin()), 1)};
}

Bound aligned_blocks(const Pieces& problem) {
  constexpr std::size_t kMostAlignments = 64;  // powers of two are no more
  std::set<Units> alignments;
  for (const Piece& piece : problem.pieces) {
    if (alignments.size() < kMostAlignments) alignments.insert(piece.alignment);
  }
  Bound best;
  for (const Units alignment : alignments) {
    Bound bound = blocks_of(problem, alignment);
    if (bound.height > best.height) best = std::move(bound);
  }
  return best;
}

Bound fixed_ends(const Pieces& problem) {
  Bound best;
  for (std::uint32_t p = 0; p < problem.pieces.size(); ++p) {
    const Piece& piece = problem.pieces[p];
    if (piece.fixed >= 0 && piece.fixed + piece.size > best.height) best = {piece.fixed + piece.size, {p}};
  }
  return best;
}

Bound best_bound(const Pieces& problem) {
  Bound best;
  for (const BoundAlgorithm& bound : bounds()) {
    Bound found = bound.run(problem);
    if (found.height > best.height) best = std::move(found);
  }
  return best;
}

}  // namespace lowtide
