#include "layout/placed.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace lowtide {
namespace {

// Measured: what it takes to look at one set of spans, and to change one.
constexpr std::uint64_t kStepsToLook = 6;
constexpr std::uint64_t kStepsToChange = 40;

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

// Calls visit(node) for the nodes above those that make up the run, and for some of those below them.
template <typename Visit>
void for_each_node_around(std::size_t width, int begin, int end, Visit visit) {
  std::size_t left = width + static_cast<std::size_t>(begin);
  std::size_t right = width + static_cast<std::size_t>(end) - 1;
  for (; left != right; left /= 2, right /= 2) {
    visit(left);
    visit(right);
  }
  for (; left > 0; left /= 2) visit(left);
}

}  // namespace

Placed::Placed(const Pieces& problem)
    : problem_(problem),
      width_(std::bit_ceil(std::max<std::size_t>(problem.load.size(), 1))),
      nodes_(2 * width_),
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
  for_each_node(width_, own.begin, own.end, [&](std::size_t node) {
    nodes_[node].listed.push_back(piece);
    nodes_[node].throughout.add(span_of(piece));
    nodes_[node].somewhere.add(span_of(piece));
    steps_ += 2 * kStepsToChange;
  });
  for_each_node_around(width_, own.begin, own.end, [&](std::size_t node) {
    nodes_[node].somewhere.add(span_of(piece));
    steps_ += kStepsToChange;
  });
}

// What is left is put together again, at the nodes of the pieces and above them.
void Placed::remove(std::span<const std::uint32_t> pieces) {
  std::vector<std::size_t> changed;
  for (const std::uint32_t piece : pieces) {
    offsets_[piece] = -1;
    const Piece& own = problem_.pieces[piece];
    for_each_node(width_, own.begin, own.end, [&](std::size_t node) { changed.push_back(node); });
    for_each_node_around(width_, own.begin, own.end, [&](std::size_t node) { changed.push_back(node); });
  }
  std::ranges::sort(changed, std::greater());  // what lies below a node has a higher number
  const auto twice = std::ranges::unique(changed);
  changed.erase(twice.begin(), twice.end());
  for (const std::size_t number : changed) {
    Node& node = nodes_[number];
    std::erase_if(node.listed, [&](std::uint32_t piece) { return !contains(piece); });
    node.throughout.clear();
    for (const std::uint32_t piece : node.listed) node.throughout.add(span_of(piece));
    node.somewhere = node.throughout;
    steps_ += kStepsToChange * (1 + node.listed.size());
    if (number >= width_) continue;
    for (const std::size_t below : {2 * number, 2 * number + 1}) {
      node.somewhere.add(nodes_[below].somewhere);
      steps_ += kStepsToChange * nodes_[below].somewhere.all().size();
    }
  }
}

// Points taken_ to the addresses that are taken while the piece lives.
void Placed::collect(const Piece& own) {
  taken_.clear();
  const auto take = [&](const Spans& spans) {
    const auto all = spans.all();
    if (!all.empty()) taken_.push_back({all.data(), all.data() + all.size()});
  };
  for_each_node(width_, own.begin, own.end, [&](std::size_t node) { take(nodes_[node].somewhere); });
  for_each_node_around(width_, own.begin, own.end, [&](std::size_t node) { take(nodes_[node].throughout); });
  steps_ += kStepsToLook * taken_.size();
}

// The lowest offset from `from` on at which `size` units are free. Cursors only move up.
Units Placed::lowest_free(Units from, Units size, Units alignment) {
  Units offset = align_up(from, alignment);
  std::size_t free = 0;  // how many cursors in a row have nothing at this offset
  for (std::size_t c = 0; free < taken_.size(); c = c + 1 == taken_.size() ? 0 : c + 1) {
    Cursor& cursor = taken_[c];
    if (cursor.at != cursor.end && cursor.at->end <= offset) {
      cursor.at = std::upper_bound(cursor.at + 1, cursor.end, offset,
                                   [](Units value, const Span& span) { return value < span.end; });
    }
    steps_ += kStepsToLook;
    if (cursor.at != cursor.end && cursor.at->begin < offset + size) {
      offset = align_up(cursor.at->end, alignment);
      free = 0;
    } else {
      ++free;
    }
  }
  return offset;
}

// Where what is free at `from` ends.
Units Placed::next_taken(Units from) const {
  Units end = std::numeric_limits<Units>::max();
  for (const Cursor& cursor : taken_) {
    if (cursor.at != cursor.end) end = std::min(end, std::max(from, cursor.at->begin));
  }
  return end;
}

std::optional<Units> Placed::find_gap(std::uint32_t piece, Units capacity, Fit fit) {
  const Piece& own = problem_.pieces[piece];
  collect(own);
  if (own.fixed >= 0 || fit == Fit::lowest) {
    const Units wanted = std::max<Units>(own.fixed, 0);
    const Units offset = lowest_free(wanted, own.size, own.alignment);
    if (own.fixed >= 0 && offset != wanted) return std::nullopt;
    return offset + own.size <= capacity ? std::optional(offset) : std::nullopt;
  }
  std::optional<Units> best;
  Units best_room = 0;
  for (Units from = 0; from < capacity;) {
    const Units begin = lowest_free(from, 1, 1);
    const Units end = std::min(next_taken(begin), capacity);
    const Units offset = align_up(begin, own.alignment);
    if (end - offset >= own.size && (!best || end - begin < best_room)) {
      best = offset;
      best_room = end - begin;
    }
    from = end;
    steps_ += kStepsToLook * taken_.size();
  }
  return best;
}

}  // namespace lowtide
