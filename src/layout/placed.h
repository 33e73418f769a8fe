// placed.h: pieces that have a place, and the gaps between them.
//
// A tree over the sections: each piece is listed at the O(log sections) nodes that make up its run. Every node knows
// two sets of addresses: those that the pieces listed at it take over all of its sections, and those that pieces listed
// at it or below it take over some of them. What is taken somewhere over a run is the second of the nodes that make it
// up, and the first of those above them. Where pieces lie side by side, their addresses are one span, so that even
// among thousands that live together a gap is found in few steps. No pairs are kept.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "layout/pieces.h"
#include "layout/spans.h"

namespace lowtide {

class Placed {
 public:
  explicit Placed(const Pieces& problem);

  void add(std::uint32_t piece, Units offset);
  void remove(std::span<const std::uint32_t> pieces);
  bool contains(std::uint32_t piece) const { return offsets_[piece] >= 0; }
  const std::vector<Units>& offsets() const { return offsets_; }

  // Calls visit(piece) for each that has a place and lives in one of these sections.
  template <typename Visit>
  void for_each_over(int begin, int end, Visit visit) const {
    for (std::size_t node = width_ + static_cast<std::size_t>(begin); node >= 1; node /= 2) {
      for (const std::uint32_t piece : nodes_[node].listed) visit(piece);
    }
    for (std::uint32_t piece = first_at_[static_cast<std::size_t>(begin) + 1];
         piece < first_at_[static_cast<std::size_t>(end)]; ++piece) {
      if (contains(piece)) visit(piece);
    }
  }

  enum class Fit { lowest, tightest };
  // The offset of a gap below `capacity` that holds the piece: the lowest such, or the one that it fills best.
  std::optional<Units> find_gap(std::uint32_t piece, Units capacity, Fit fit);

  std::uint64_t steps() const { return steps_; }  // of work so far, about a nanosecond each

 private:
  struct Node {
    std::vector<std::uint32_t> listed;
    Spans throughout;  // addresses taken over all of its sections
    Spans somewhere;   // addresses taken over some of them, by what is listed at it or below it
  };
  // Spans that are looked through from the bottom up.
  struct Cursor {
    const Span* at;
    const Span* end;
  };

  void collect(const Piece& piece);
  Units lowest_free(Units from, Units size, Units alignment);
  Units next_taken(Units from) const;
  Span span_of(std::uint32_t piece) const { return {offsets_[piece], offsets_[piece] + problem_.pieces[piece].size}; }

  const Pieces& problem_;
  std::size_t width_;                    // a power of two
  std::vector<Node> nodes_;              // 1 is the root, 2 i and 2 i + 1 are below i
  std::vector<std::uint32_t> first_at_;  // by section: the first piece that begins there or later
  std::vector<Units> offsets_;           // by piece; -1 where it has none
  std::vector<Cursor> taken_;            // what is taken beside the piece that is looked at
  std::uint64_t steps_ = 0;
};

}  // namespace lowtide
