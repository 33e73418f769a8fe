// placed.h: pieces that have a place, found by the sections they cover.
//
// A tree over the sections: each piece is listed at the O(log sections) nodes that make up its run. What lives together
// with a run is listed above the run's first section, or begins within the run. No pairs are kept.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "layout/pieces.h"

namespace lowtide {

class Placed {
 public:
  explicit Placed(const Pieces& problem);

  void add(std::uint32_t piece, Units offset);
  void remove(std::uint32_t piece);
  bool contains(std::uint32_t piece) const { return offsets_[piece] >= 0; }
  const std::vector<Units>& offsets() const { return offsets_; }

  // Calls visit(piece) for each that has a place and lives together with `piece`.
  template <typename Visit>
  void for_each_beside(std::uint32_t piece, Visit visit) const {
    const Piece& own = problem_.pieces[piece];
    for (std::size_t node = width_ + static_cast<std::size_t>(own.begin); node >= 1; node /= 2) {
      for (const std::uint32_t other : listed_[node]) visit(other);
    }
    for (std::uint32_t other = first_at_[static_cast<std::size_t>(own.begin) + 1];
         other < first_at_[static_cast<std::size_t>(own.end)]; ++other) {
      if (contains(other)) visit(other);
    }
  }

  enum class Fit { lowest, tightest };
  // The offset of a gap below `capacity` that holds the piece: the lowest such, or the one that it fills best.
  std::optional<Units> find_gap(std::uint32_t piece, Units capacity, Fit fit);

  std::uint64_t touched() const { return touched_; }  // pieces met by all searches so far
  static constexpr std::uint64_t kStepsToMeet = 60;   // measured: what meeting and sorting one of them takes

 private:
  const Pieces& problem_;
  std::size_t width_;                               // a power of two
  std::vector<std::vector<std::uint32_t>> listed_;  // by node: 1 is the root, 2 i and 2 i + 1 are below i
  std::vector<std::uint32_t> first_at_;             // by section: the first piece that begins there or later
  std::vector<Units> offsets_;                      // by piece; -1 where it has none
  std::vector<std::pair<Units, Units>> beside_;     // offset and top
  std::uint64_t touched_ = 0;
};

}  // namespace lowtide
