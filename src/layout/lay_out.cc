#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "layout/algorithms.h"
#include "layout/conflict.h"
#include "layout/squeeze.h"

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

// A bound in bytes: whatever ends highest may have been rounded up.
Bytes bytes_of(const Pieces& problem, Units bound) {
  return Bytes(static_cast<std::uint64_t>(bound) * problem.unit.count()) - problem.rounding;
}

Result<Packing> run_one(const Packer& packer, const Pieces& problem, const Bound& bound, Work& work) {
  Result<Offsets> made = packer.run(problem, work);
  if (!made.ok()) return made.error();
  const Units top = top_of(problem, *made);
  return Packing{*std::move(made), top, bound, packer.known_as.name};
}

Result<Packing> run_reference(const Reference& reference, const Pieces& problem, const Bound& bound, Work& work) {
  Result<ProvenOffsets> made = reference.run(problem, work);
  if (!made.ok()) return made.error();
  const Units top = top_of(problem, made->offsets);
  Packing packing{std::move(made->offsets), top, bound, reference.known_as.name};
  if (made->bound <= bound.height) return packing;
  packing.bound = {made->bound, std::vector<std::uint32_t>(problem.pieces.size())};
  std::iota(packing.bound.pieces.begin(), packing.bound.pieces.end(), 0u);  // it says no more than all of them
  return packing;
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
    if (arena <= bytes_of(problem, bound.height) || (*best)->top <= enough) break;
  }
  return *std::move(best);
}

Result<Packing> run_named(const LayoutOptions& options, const Pieces& problem, const Bound& bound, Units enough,
                          Work& work) {
  if (options.algorithm == "auto" || options.algorithm == "exact") {
    Result<Packing> packing = run_cheap(problem, bound, enough, work);
    if (packing.ok()) squeeze(problem, enough, options.threads, *packing, work);
    return packing;
  }
  std::string known;
  for (const Packer& packer : packers()) {
    if (packer.known_as.name == options.algorithm) return run_one(packer, problem, bound, work);
    known += words(packer.known_as.name, ", ");
  }
  for (const Reference& reference : references()) {
    if (reference.known_as.name == options.algorithm) return run_reference(reference, problem, bound, work);
    known += words(reference.known_as.name, ", ");
  }
  return Error{ErrorCode::unknown_algorithm,
               words("there is no layout algorithm '", options.algorithm, "'; there are: ", known, "exact, auto")};
}

Error too_small(Bytes capacity, std::span<const LayoutItem> items, const Pieces& problem, const Bound& bound,
                Work& work) {
  Infeasible why;
  why.bound = bytes_of(problem, bound.height);
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
  if (const Status status = check(items); !status.ok()) return status.error();
  const Result<Pieces> problem = to_pieces(items);
  if (!problem.ok()) return problem.error();
  if (const Status status = check_fixed(*problem); !status.ok()) return status.error();
  const std::uint64_t unit = problem->unit.count();
  const Bytes capacity = std::min(options.capacity.value_or(Bytes(0)), kMostBytes);
  const Units enough = static_cast<Units>(capacity.count() / unit);
  Work work(options.steps,
            options.time_limit ? Work::Clock::now() + *options.time_limit : Work::Clock::time_point::max());
  const Bound bound = best_bound(*problem);
  if (options.capacity && bound.height > enough && bytes_of(*problem, bound.height) > *options.capacity) {
    return too_small(*options.capacity, items, *problem, bound, work);
  }
  const Result<Packing> packing = run_named(options, *problem, bound, enough, work);
  if (!packing.ok()) return packing.error();
  NamedLayout made{problem->layout(packing->offsets, items), Bytes(0), packing->algorithm};
  made.bound = bytes_of(*problem, packing->bound.height);
  if (options.capacity && made.layout.arena > *options.capacity) {
    if (made.bound > *options.capacity) return too_small(*options.capacity, items, *problem, packing->bound, work);
    return Error{ErrorCode::work_limit, words("no layout below ", *options.capacity, " bytes was found with ",
                                              options.steps, " steps of work; the best takes ", made.layout.arena)};
  }
  return made;
}

}  // namespace lowtide
