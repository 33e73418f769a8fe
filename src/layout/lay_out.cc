#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/find_algorithm.h"
#include "layout/algorithms.h"
#include "layout/conflict.h"
#include "layout/squeeze.h"
#include "lowtide/verify.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kCheapShare = 50;  // a cheap algorithm gets one part in this many of the work

Status check(std::span<const LayoutItem> items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::uint64_t alignment = items[i].alignment.count();
    if (alignment == 0) return Error{ErrorCode::invalid_item, words("item ", i, " has an alignment of 0")};
    if (items[i].fixed && *items[i].fixed + items[i].size > kMostBytes) return does_not_fit(i, items[i].size);
    if (items[i].fixed && items[i].fixed->count() % alignment != 0) {
      return Error{ErrorCode::invalid_item, words("item ", i, " is fixed at offset ", *items[i].fixed,
                                                  ", which is no multiple of its alignment ", alignment)};
    }
  }
  return Done{};
}

// Fixed pieces must leave each other in peace.
Status check_fixed(const Pieces& problem) {
  std::vector<const Piece*> fixed;
  for (const Piece& piece : problem.pieces) {
    if (piece.fixed >= 0) fixed.push_back(&piece);
  }
  std::vector<const Piece*> leaving = fixed;
  std::ranges::sort(leaving, {}, &Piece::end);
  std::map<Units, const Piece*> alive;  // by offset
  auto next = leaving.begin();
  for (const Piece* piece : fixed) {
    for (; (*next)->end <= piece->begin; ++next) alive.erase((*next)->fixed);
    const auto above = alive.lower_bound(piece->fixed);
    const Piece* other = nullptr;
    if (above != alive.end() && above->first < piece->fixed + piece->size) other = above->second;
    if (above != alive.begin()) {
      const Piece* below = std::prev(above)->second;
      if (below->fixed + below->size > piece->fixed) other = below;
    }
    if (other != nullptr) {
      return Error{ErrorCode::invalid_item,
                   words("items ", std::min(other->item, piece->item), " and ", std::max(other->item, piece->item),
                         " are fixed on the same bytes while both live")};
    }
    alive.emplace(piece->fixed, piece);
  }
  return Done{};
}

Result<Packing> run_one(const Packer& packer, const Pieces& problem, const Bound& bound, Work& work) {
  Result<Offsets> made = packer.run(problem, work);
  if (!made.ok()) return made.error();
  const Units top = top_of(problem, *made);
  return Packing{*std::move(made), top, bound, packer.name};
}

// The best of the cheap ones; the first that is good enough ends the search.
Result<Packing> run_cheap(const Pieces& problem, const Bound& bound, Units enough, Work& work) {
  std::optional<Result<Packing>> best;
  Bytes arena;  // of the best
  const std::uint64_t share = work.left() / kCheapShare;
  for (const Packer& packer : packers()) {
    Result<Packing> made = with_part(work, share, [&](Work& part) { return run_one(packer, problem, bound, part); });
    if (best && (!made.ok() || (best->ok() && arena_of(problem, made->offsets) >= arena))) continue;
    best = std::move(made);
    if (!best->ok()) continue;
    arena = arena_of(problem, (*best)->offsets);
    if (arena <= problem.bound_in_bytes(bound.height) || (*best)->top <= enough) break;
  }
  return *std::move(best);
}

struct ProvenLayout {
  NamedLayout named;
  Bound bound;  // the same in units, with the pieces that prove it
};

ProvenLayout in_bytes(std::span<const LayoutItem> items, const Pieces& problem, Packing packing) {
  return {{problem.layout(packing.offsets, items), problem.bound_in_bytes(packing.bound.height), packing.algorithm},
          std::move(packing.bound)};
}

// What the caller's algorithm makes is verified; what it says to have proven is taken at its word.
Result<ProvenLayout> run_other(const LayoutAlgorithm& algorithm, std::span<const LayoutItem> items,
                               const Pieces& problem, Bound bound, Work& work) {
  Result<BoundedLayout> made = algorithm.run(items, work);
  if (!made.ok()) return made.error();
  if (Status status = verify_layout(items, made->layout); !status.ok()) {
    Error error = status.error();
    error.message = words("layout algorithm '", algorithm.name, "': ", error.message);
    return error;
  }
  const Bytes proven = std::min(made->bound, made->layout.arena);
  const auto height = static_cast<Units>((proven + problem.rounding).count() / problem.unit.count());
  if (height > bound.height) {
    bound = {height, std::vector<std::uint32_t>(problem.pieces.size())};
    std::iota(bound.pieces.begin(), bound.pieces.end(), 0u);  // it says no more than all of them
  }
  return ProvenLayout{{std::move(made->layout), problem.bound_in_bytes(bound.height), algorithm.name},
                      std::move(bound)};
}

Result<ProvenLayout> run_named(std::span<const LayoutItem> items, const LayoutOptions& options, const Pieces& problem,
                               const Bound& bound, Units enough, Work& work) {
  if (options.algorithm == "auto" || options.algorithm == "exact") {
    Result<Packing> packing = run_cheap(problem, bound, enough, work);
    if (!packing.ok()) return packing.error();
    squeeze(problem, enough, options.threads, *packing, work);
    return in_bytes(items, problem, *std::move(packing));
  }
  for (const Packer& packer : packers()) {
    if (packer.name != options.algorithm) continue;
    Result<Packing> packing = run_one(packer, problem, bound, work);
    if (!packing.ok()) return packing.error();
    return in_bytes(items, problem, *std::move(packing));
  }
  const Result<LayoutAlgorithm> other =
      find_algorithm("layout", options.algorithm, layout_algorithms(), options.others, "auto");
  if (!other.ok()) return other.error();
  return run_other(*other, items, problem, bound, work);
}

Error too_small(Bytes capacity, std::span<const LayoutItem> items, const Pieces& problem, const Bound& bound,
                Work& work) {
  Infeasible why;
  why.bound = problem.bound_in_bytes(bound.height);
  // What ends highest may have been rounded up, and end within the capacity all the same.
  const auto below = static_cast<Units>((capacity + problem.rounding).count() / problem.unit.count());
  std::vector<std::uint32_t> culprits;
  for (const std::uint32_t piece : smallest_conflict(problem, below, bound.pieces, work))
    culprits.push_back(problem.pieces[piece].item);
  std::ranges::sort(culprits, {}, [&](std::uint32_t item) { return std::pair(~items[item].size.count(), item); });
  for (const std::uint32_t item : culprits) why.culprits.push_back({words("item ", item), items[item].size, "item"});
  return {ErrorCode::packing_infeasible,
          words("no layout fits into ", capacity, " bytes: ", culprits.size(), " of the ", problem.pieces.size(),
                " items already do not, at least ", why.bound, " bytes are needed"),
          std::move(why)};
}

}  // namespace

Result<NamedLayout> lay_out(std::span<const LayoutItem> items, const LayoutOptions& options) {
  Work work(options.steps,
            options.time_limit ? Work::Clock::now() + *options.time_limit : Work::Clock::time_point::max());
  return lay_out(items, options, work);
}

Result<NamedLayout> lay_out(std::span<const LayoutItem> items, const LayoutOptions& options, Work& work) {
  if (const Status status = check(items); !status.ok()) return status.error();
  const Result<Pieces> problem = to_pieces(items);
  if (!problem.ok()) return problem.error();
  if (const Status status = check_fixed(*problem); !status.ok()) return status.error();
  const std::uint64_t unit = problem->unit.count();
  const Bytes capacity = std::min(options.capacity.value_or(Bytes(0)), kMostBytes);
  const Units enough = static_cast<Units>(capacity.count() / unit);
  const Bound bound = best_bound(*problem);
  if (options.capacity && bound.height > enough && problem->bound_in_bytes(bound.height) > *options.capacity) {
    return too_small(*options.capacity, items, *problem, bound, work);
  }
  const std::uint64_t steps = work.left();
  Result<ProvenLayout> made = run_named(items, options, *problem, bound, enough, work);
  if (!made.ok()) return made.error();
  const Bytes arena = made->named.layout.arena;
  if (options.capacity && arena > *options.capacity) {
    if (made->named.bound > *options.capacity) return too_small(*options.capacity, items, *problem, made->bound, work);
    return Error{ErrorCode::work_limit, words("no layout below ", *options.capacity, " bytes was found with ", steps,
                                              " steps of work; the best takes ", arena)};
  }
  return std::move(made->named);
}

}  // namespace lowtide
