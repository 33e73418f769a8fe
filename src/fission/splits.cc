#include "fission/splits.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "fission/growth.h"
#include "fission/made_again.h"
#include "fission/operands.h"
#include "graph/dependencies.h"
#include "lowtide/lifetimes.h"
#include "rewrite/recompute.h"

namespace lowtide {
namespace {

bool is_cut(const std::vector<Split>& splits, OpId op) {
  return std::ranges::any_of(
      splits, [&](const Split& split) { return std::ranges::find(split.ops, op, &CutOp::op) != split.ops.end(); });
}

// From the op that needs most to that which needs least, each along the axis that costs least.
std::optional<std::vector<Split>> splits_of(const Graph& graph, Bytes most, bool exact) {
  const Operands operands(graph);
  const Dependencies needs = dependencies(graph);
  std::vector<std::pair<Bytes, OpId>> large;
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    if (const Bytes bytes = operands.needed(id); bytes > most) large.emplace_back(bytes, id);
  }
  std::ranges::stable_sort(large, std::ranges::greater{}, [](const auto& one) { return one.first; });
  std::vector<Split> splits;
  for (const auto& [bytes, op] : large) {
    if (is_cut(splits, op)) continue;
    std::optional<GrownSplit> best;
    for (std::size_t axis = 0; axis < graph.num_axes(op); ++axis) {
      std::optional<GrownSplit> grown = Growth(operands, needs, splits, most, exact).from(op, axis);
      const auto rank = [](const GrownSplit& one) { return std::tuple(one.more_time, one.split.ops.size()); };
      if (grown && (!best || rank(*grown) < rank(*best))) best = std::move(grown);
    }
    if (!best) return std::nullopt;
    std::vector<Split> kept;
    for (std::size_t i = 0; i < splits.size(); ++i) {
      if (std::ranges::find(best->absorbed, i) == best->absorbed.end()) kept.push_back(std::move(splits[i]));
    }
    kept.push_back(std::move(best->split));
    splits = std::move(kept);
  }
  if (splits.empty()) return std::nullopt;
  return splits;
}

}  // namespace

std::optional<Splitting> splits_within(const Graph& graph, Bytes most, bool exact) {
  if (!graph.has_axes()) return std::nullopt;
  Splitting found{steps_with_large_made_again(Operands(graph), most), {}};
  const Result<Rewritten> again = run_again(graph, found.steps);
  if (!again.ok()) return std::nullopt;
  std::optional<std::vector<Split>> splits = splits_of(again->graph, most, exact);
  if (!splits) return std::nullopt;
  found.splits = *std::move(splits);
  return found;
}

}  // namespace lowtide
