// Large problems, the tight part first: the pieces over the fullest sections are packed exactly, the others go into the
// gaps, the largest first, and where there is no gap for one, it takes the place of those that are the cheapest to
// move.
#include "layout/core_first.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

#include "layout/algorithms.h"
#include "layout/placed.h"
#include "layout/valley_search.h"

namespace lowtide {
namespace {

// The pieces over sections whose load is at least `share` of the bound.
std::vector<std::uint32_t> core_of(const Pieces& problem, double share) {
  const auto full = static_cast<Units>(share * static_cast<double>(problem.bound));
  std::vector<int> full_before(problem.load.size() + 1);  // by section: how many before it are full
  for (std::size_t s = 0; s < problem.load.size(); ++s) {
    full_before[s + 1] = full_before[s] + (problem.load[s] >= full ? 1 : 0);
  }
  std::vector<std::uint32_t> core;
  for (std::uint32_t p = 0; p < problem.pieces.size(); ++p) {
    const Piece& piece = problem.pieces[p];
    const bool hot =
        full_before[static_cast<std::size_t>(piece.end)] > full_before[static_cast<std::size_t>(piece.begin)];
    if (hot || piece.fixed >= 0) core.push_back(p);
  }
  return core;
}

// Puts pieces into gaps below the capacity, and others out of their way where there is none.
class Insertion {
 public:
  Insertion(const Pieces& problem, Units capacity, Placed& placed)
      : problem_(problem), capacity_(capacity), placed_(placed), ejected_(problem.pieces.size(), 0.0) {}

  // Answers false when it does not come to an end.
  bool insert_all(Work& work) {
    std::priority_queue<std::pair<Units, std::uint32_t>> waiting;  // the largest first
    for (std::uint32_t p = 0; p < problem_.pieces.size(); ++p) {
      if (!placed_.contains(p)) waiting.emplace(problem_.pieces[p].size, p);
    }
    // Where it ends well, few pieces find no gap; where many do not, they go on pushing each other about.
    const std::size_t most_conflicts = 1000 + problem_.pieces.size() / 100;
    std::size_t conflicts = 0;
    std::uint64_t touched = placed_.touched();
    while (!waiting.empty()) {
      const std::uint32_t piece = waiting.top().second;
      waiting.pop();
      std::optional<Units> offset = placed_.find_gap(piece, capacity_, Placed::Fit::lowest);
      if (!offset) {
        if (++conflicts > most_conflicts) return false;
        offset = cheapest_place(piece);
        if (!offset) return false;
        for (const std::uint32_t other : in_the_way(piece, *offset)) {
          ejected_[other] += 1;
          placed_.remove(other);
          waiting.emplace(problem_.pieces[other].size, other);
        }
        ejected_[piece] += 0.5;
        if (!work.spend(4 * Placed::kStepsToMeet * begins_.size())) return false;
      }
      placed_.add(piece, *offset);
      if (!work.spend(Placed::kStepsToMeet * (placed_.touched() - touched + 4))) return false;
      touched = placed_.touched();
    }
    return true;
  }

 private:
  std::vector<std::uint32_t> in_the_way(std::uint32_t piece, Units offset) const {
    std::vector<std::uint32_t> found;
    placed_.for_each_beside(piece, [&](std::uint32_t other) {
      const Units begin = placed_.offsets()[other];
      if (begin < offset + problem_.pieces[piece].size && offset < begin + problem_.pieces[other].size) {
        found.push_back(other);
      }
    });
    return found;
  }

  // An end of a piece in the way.
  struct End {
    Units at;
    double cost;  // of moving the piece: more for large and long ones, and more each time that it was moved before
    int fixed;    // 1 for a piece that cannot be moved

    auto operator<=>(const End&) const = default;
  };
  End end_of(std::uint32_t piece, Units at) const {
    const Piece& own = problem_.pieces[piece];
    const double cost = (1 + ejected_[piece]) * static_cast<double>(own.size) * std::sqrt(own.end - own.begin);
    return {at, cost, own.fixed >= 0 ? 1 : 0};
  }

  // Where the pieces in the way cost the least: on top of one, below one, at the bottom or at the top.
  std::optional<Units> cheapest_place(std::uint32_t piece) {
    const Piece& own = problem_.pieces[piece];
    begins_.clear();
    tops_.clear();
    places_ = {0, capacity_ - own.size};
    placed_.for_each_beside(piece, [&](std::uint32_t other) {
      const Units begin = placed_.offsets()[other];
      const Units top = begin + problem_.pieces[other].size;
      begins_.push_back(end_of(other, begin));
      tops_.push_back(end_of(other, top));
      places_.push_back(top);
      places_.push_back(begin - own.size);
    });
    std::ranges::sort(begins_);
    std::ranges::sort(tops_);
    std::ranges::sort(places_);
    double cost = 0;  // of the pieces that begin below the place's end and do not end by its begin
    int fixed = 0;    // how many of them cannot be moved
    auto begin = begins_.begin();
    auto top = tops_.begin();
    double least = std::numeric_limits<double>::infinity();
    std::optional<Units> best;
    for (const Units place : places_) {
      const Units offset = align_up(place, own.alignment);
      if (place < 0 || offset + own.size > capacity_) continue;
      for (; begin != begins_.end() && begin->at < offset + own.size; ++begin) {
        cost += begin->cost;
        fixed += begin->fixed;
      }
      for (; top != tops_.end() && top->at <= offset; ++top) {
        cost -= top->cost;
        fixed -= top->fixed;
      }
      if (fixed == 0 && cost < least) {
        least = cost;
        best = offset;
      }
    }
    return best;
  }

  const Pieces& problem_;
  const Units capacity_;
  Placed& placed_;
  std::vector<double> ejected_;
  std::vector<End> begins_;
  std::vector<End> tops_;
  std::vector<Units> places_;
};

}  // namespace

std::optional<Offsets> pack_core_first(const Pieces& problem, Units capacity, double share, Work& work) {
  const std::vector<std::uint32_t> chosen = core_of(problem, share);
  const Pieces core = subset(problem, chosen);
  const SearchResult found = search_packing(core, capacity, {}, work);
  if (found.verdict != Verdict::packed) return std::nullopt;
  Placed placed(problem);
  for (std::size_t p = 0; p < core.pieces.size(); ++p) placed.add(core.pieces[p].item, found.offsets[p]);
  if (!Insertion(problem, capacity, placed).insert_all(work)) return std::nullopt;
  return placed.offsets();
}

}  // namespace lowtide
