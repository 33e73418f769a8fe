#include "layout/placed.h"

#include <algorithm>
#include <bit>

namespace lowtide {
namespace {

// Calls visit(node) for the nodes that make up the run [begin, end).
template <typename Visit>
void for_each_node(std::size_t width, int begin, int end, Visit visit) {
  std::size_t left = width + static_cast<std::size_t>(begin);
  std::size_t right = width + static_cast<std::size_t>(end);
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) visit(left++);
    if (right % 2 == 1) visit(--right);
  }
}

}  // namespace

Placed::Placed(const Pieces& problem)
    : problem_(problem),
      width_(std::bit_ceil(std::max<std::size_t>(problem.load.size(), 1))),
      listed_(2 * width_),
      first_at_(problem.load.size() + 2),
      offsets_(problem.pieces.size(), -1) {
  std::uint32_t piece = 0;
  for (std::size_t section = 0; section < first_at_.size(); ++section) {
    while (piece < problem.pieces.size() && problem.pieces[piece].begin < static_cast<int>(section)) ++piece;
    first_at_[section] = piece;
  }
}

void Placed::add(std::uint32_t piece, Units offset) {
  offsets_[piece] = offset;
  const Piece& own = problem_.pieces[piece];
  for_each_node(width_, own.begin, own.end, [&](std::size_t node) { listed_[node].push_back(piece); });
}

void Placed::remove(std::uint32_t piece) {
  offsets_[piece] = -1;
  const Piece& own = problem_.pieces[piece];
  for_each_node(width_, own.begin, own.end, [&](std::size_t node) {
    auto& list = listed_[node];
    *std::ranges::find(list, piece) = list.back();
    list.pop_back();
  });
}

std::optional<Units> Placed::find_gap(std::uint32_t piece, Units capacity, Fit fit) {
  const Piece& own = problem_.pieces[piece];
  beside_.clear();
  for_each_beside(piece, [&](std::uint32_t other) {
    beside_.emplace_back(offsets_[other], offsets_[other] + problem_.pieces[other].size);
  });
  touched_ += beside_.size();
  std::ranges::sort(beside_);
  if (own.fixed >= 0) {
    const bool free = std::ranges::none_of(
        beside_, [&](const auto& other) { return other.first < own.fixed + own.size && own.fixed < other.second; });
    return free && own.fixed + own.size <= capacity ? std::optional(own.fixed) : std::nullopt;
  }
  std::optional<Units> best;
  Units best_room = 0;
  Units from = 0;
  const auto consider = [&](Units end) {
    const Units offset = align_up(from, own.alignment);
    if (end - offset < own.size) return;
    if (!best || (fit == Fit::tightest && end - from < best_room)) {
      best = offset;
      best_room = end - from;
    }
  };
  for (const auto& [offset, top] : beside_) {
    if (offset > from) consider(std::min(offset, capacity));
    if (best && fit == Fit::lowest) return best;
    from = std::max(from, top);
  }
  if (from < capacity) consider(capacity);
  return best;
}

}  // namespace lowtide
