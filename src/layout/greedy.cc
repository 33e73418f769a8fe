// One piece after the other, each into a gap between those before it. The algorithms differ in who comes first and in
// which gap is taken.
#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "layout/algorithms.h"
#include "layout/gaps.h"
#include "layout/placed.h"

namespace lowtide {
namespace {

constexpr Units kNoCapacity = std::numeric_limits<Units>::max() / 2;

// Fixed pieces first, then by `key`; ties are broken by the index, so that the order does not depend on the sort.
template <typename KeyOf>
Result<Offsets> place_by(std::string_view name, const Pieces& problem, Work& work, Placed::Fit fit, KeyOf key) {
  std::vector<std::uint32_t> order(problem.pieces.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](std::uint32_t p) {
    const Piece& piece = problem.pieces[p];
    return std::tuple(piece.fixed < 0, key(piece), p);
  });
  Placed placed(problem);
  std::uint64_t counted = 0;
  for (const std::uint32_t piece : order) {
    const std::optional<Units> offset = placed.find_gap(piece, kNoCapacity, fit);
    placed.add(piece, *offset);  // there is always room above, and fixed pieces do not overlap
    if (!work.spend(placed.steps() - std::exchange(counted, placed.steps()))) return out_of_work(name, problem);
  }
  return placed.offsets();
}

}  // namespace

Result<Offsets> greedy_by_size(const Pieces& problem, Work& work) {
  return place_by("greedy_by_size", problem, work, Placed::Fit::lowest,
                  [](const Piece& piece) { return std::tuple(-piece.size, ~piece.steps); });
}

Result<Offsets> tightest_by_size(const Pieces& problem, Work& work) {
  return place_by("tightest_by_size", problem, work, Placed::Fit::tightest,
                  [](const Piece& piece) { return std::tuple(-piece.size, ~piece.steps); });
}

Result<Offsets> longest_lived(const Pieces& problem, Work& work) {
  return place_by("longest_lived", problem, work, Placed::Fit::tightest,
                  [](const Piece& piece) { return std::tuple(~piece.steps, -piece.size); });
}

// Without fixed pieces, gaps are all that has to be known of what is alive: near-linear.
Result<Offsets> first_fit(const Pieces& problem, Work& work) {
  const auto longest_first = [](const Piece& piece) { return std::tuple(piece.begin, ~piece.steps, -piece.size); };
  const bool plain =
      std::ranges::all_of(problem.pieces, [](const Piece& p) { return p.fixed < 0 && p.alignment == 1; });
  if (!plain) return place_by("first_fit", problem, work, Placed::Fit::lowest, longest_first);
  std::vector<std::uint32_t> arrivals(problem.pieces.size());
  std::iota(arrivals.begin(), arrivals.end(), 0u);
  std::vector<std::uint32_t> departures = arrivals;
  std::ranges::sort(arrivals, {}, [&](std::uint32_t p) { return std::tuple(longest_first(problem.pieces[p]), p); });
  std::ranges::sort(departures, {}, [&](std::uint32_t p) { return std::tuple(problem.pieces[p].end, p); });
  Offsets offsets(problem.pieces.size());
  Gaps gaps;
  auto leaving = departures.begin();
  for (const std::uint32_t p : arrivals) {
    const Piece& piece = problem.pieces[p];
    for (; problem.pieces[*leaving].end <= piece.begin; ++leaving) {
      gaps.give_back(offsets[*leaving], offsets[*leaving] + problem.pieces[*leaving].size);
    }
    offsets[p] = gaps.take(piece.size);
  }
  return offsets;
}

}  // namespace lowtide
