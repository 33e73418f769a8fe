#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "lowtide/recompute.h"
#include "trade/chen.h"
#include "trade/dtr.h"
#include "trade/greedy_drops.h"
#include "trade/rotor.h"
#include "trade/step_trades.h"
#include "trade/trades.h"
#include "trade/turnless.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kBoundShare = 4;  // the bound gets one part in this many of the work

constexpr std::array kAlgorithms = {
    TradeAlgorithm{"auto",
                   "Cuts at many prices, a dynamic program over segments, and exact moves where the bound is far.",
                   auto_trades},
    TradeAlgorithm{"greedy", "One drop after the other, the most bytes for the cost first.", greedy_trades},
    TradeAlgorithm{"chen", "Checkpoints at the ends of groups of layers (Chen et al., 2016).", chen_trades},
    TradeAlgorithm{"rotor", "The best persistent checkpoints of a chain of layers (Beaumont et al., 2019).",
                   rotor_trades},
    TradeAlgorithm{"dtr", "Dynamic tensor rematerialization's online rule (Kirisame et al., 2021), simulated.",
                   dtr_trades, true},
};

Result<std::vector<Steps>> found_by(const TradeAlgorithm& algorithm, const Graph& graph, std::span<const OpId> order,
                                    Work& work) {
  const Reruns step = to_reruns(graph, order);
  const TradeBound bound =
      with_part(work, work.left() / kBoundShare, [&](Work& part) { return TradeBound(graph, step, part); });
  const FindTrades find = [&](const Reruns& part, Work& left) { return algorithm.run(bound, part, left); };
  std::vector<Steps> found;
  if (algorithm.anywhere) {
    found = with_part(work, work.left() / 2,
                      [&](Work& part) { return steps_found(without_turn(step), false, find, part); });
  }
  for (Steps& steps : steps_found(step, has_several_turns(graph), find, work)) found.push_back(std::move(steps));
  return found;
}

}  // namespace

std::span<const TradeAlgorithm> trade_algorithms() {
  return kAlgorithms;
}

std::span<const RecomputeAlgorithm> recompute_algorithms() {
  static const std::vector<RecomputeAlgorithm> known = [] {
    std::vector<RecomputeAlgorithm> all;
    for (const TradeAlgorithm& algorithm : kAlgorithms) {
      all.push_back({algorithm.name, algorithm.description,
                     [algorithm](const Graph& graph, std::span<const OpId> order, Work& work) {
                       return found_by(algorithm, graph, order, work);
                     }});
    }
    return all;
  }();
  return known;
}

std::uint64_t trade_steps(std::size_t num_ops) {
  constexpr std::uint64_t kLeast = 50'000'000;
  constexpr std::uint64_t kAnOp = 1'000'000;
  constexpr std::uint64_t kMost = 3'000'000'000;
  return std::clamp(kAnOp * num_ops, kLeast, kMost);
}

}  // namespace lowtide
