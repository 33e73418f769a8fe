#include "layout/squeeze.h"

#include <algorithm>
#include <span>

#include "layout/core_first.h"
#include "layout/valley_search.h"

namespace lowtide {
namespace {

constexpr std::size_t kSmall = 2500;  // pieces that one search takes as a whole

// What is tried on a large problem, in this order: none of it is always best.
struct Attempt {
  double capacity;  // as a multiple of the lowest that may do
  double share;     // of the bound that makes a section part of the core
  double part;      // of the work
};
constexpr Attempt kAttempts[] = {
    {1.0, 0.95, 0.06},   {1.0, 0.90, 0.06},   {1.0, 0.99, 0.06},  {1.0, 0.80, 0.50},  {1.001, 0.95, 0.06},
    {1.001, 0.90, 0.06}, {1.003, 0.95, 0.05}, {1.003, 0.9, 0.05}, {1.01, 0.90, 0.05}, {1.03, 0.9, 0.05},
};
// Above so many pieces there is work for little more than one.
constexpr std::size_t kLarge = 200'000;
constexpr Attempt kFewAttempts[] = {{1.0, 0.80, 0.90}, {1.003, 0.90, 0.10}};

// Packs the core first; answers whether there now is a packing below the capacity.
bool pack_core(const Pieces& problem, Units capacity, double share, std::uint64_t steps, Packing& packing, Work& work) {
  std::optional<Offsets> found =
      with_part(work, steps, [&](Work& part) { return pack_core_first(problem, capacity, share, part); });
  if (!found) return false;
  packing.offsets = *std::move(found);
  packing.top = top_of(problem, packing.offsets);
  packing.algorithm = "core_first";
  return true;
}

// First for luck at the lowest capacity that may do: the whole, then its core, then the whole again. Then, with what is
// left, for ever better packings or a proof that there is none: between what is proven and what is reached, half way
// each time.
void squeeze_small(const Pieces& problem, Units enough, Packing& packing, Work& work) {
  std::uint64_t seed = 0;
  const auto search = [&](Units capacity, std::uint64_t steps, bool prove) {
    SearchResult found = with_part(work, steps, [&](Work& part) {
      return search_packing(problem, capacity, {.seed = seed++, .prove = prove}, part);
    });
    if (found.verdict == Verdict::packed) {
      packing.offsets = std::move(found.offsets);
      packing.top = top_of(problem, packing.offsets);
      packing.algorithm = "exact";
    } else if (found.verdict == Verdict::infeasible) {
      packing.bound = capacity + 1;
      packing.conflict = std::move(found.conflict);
    }
    return found.verdict;
  };
  const Units lowest = std::max(packing.bound, enough);
  if (search(lowest, work.left() / 8, false) == Verdict::gave_up) {
    for (const double share : {0.95, 0.90, 0.99, 0.80}) {
      if (pack_core(problem, lowest, share, work.left() / 16, packing, work)) return;
    }
    search(lowest, work.left() / 2, false);
  }
  for (Units least = std::max(packing.bound, enough); packing.top > least && work.left() > 1000;) {
    const Units capacity = least + (packing.top - 1 - least) / 2;
    const Verdict verdict = search(capacity, work.left() / 4, capacity == least);
    if (verdict == Verdict::infeasible) least = std::max(packing.bound, enough);
    if (verdict != Verdict::gave_up) continue;
    if (capacity + 1 >= packing.top) {
      search(least, work.left(), true);
      return;
    }
    least = capacity + 1;
  }
}

void squeeze_large(const Pieces& problem, Units enough, Packing& packing, Work& work) {
  const std::span<const Attempt> attempts =
      problem.pieces.size() <= kLarge ? std::span<const Attempt>(kAttempts) : std::span<const Attempt>(kFewAttempts);
  const auto least = static_cast<double>(std::max(packing.bound, enough));
  const auto all = static_cast<double>(work.left());
  for (const Attempt& attempt : attempts) {
    const auto capacity = static_cast<Units>(least * attempt.capacity);
    if (packing.top <= capacity) return;
    const auto steps = static_cast<std::uint64_t>(attempt.part * all);
    pack_core(problem, capacity, attempt.share, steps, packing, work);
  }
}

}  // namespace

void squeeze(const Pieces& problem, Units enough, Packing& packing, Work& work) {
  if (packing.top <= std::max(packing.bound, enough)) return;
  if (problem.pieces.size() <= kSmall) {
    squeeze_small(problem, enough, packing, work);
  } else {
    squeeze_large(problem, enough, packing, work);
  }
}

}  // namespace lowtide
