#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "graph/words.h"
#include "search/trades.h"

namespace lowtide {
namespace {

constexpr std::array kAlgorithms = {
    TradeAlgorithm{
        {"auto", "Cuts at many prices, a dynamic program over segments, and exact moves where the bound is far."},
        auto_trades},
};

}  // namespace

std::span<const RecomputeAlgorithm> recompute_algorithms() {
  static const std::vector<RecomputeAlgorithm> kNames(kAlgorithms.begin(), kAlgorithms.end());
  return kNames;
}

Result<TradeAlgorithm> find_trades(std::string_view name) {
  const auto found = std::ranges::find(kAlgorithms, name, &TradeAlgorithm::name);
  if (found != kAlgorithms.end()) return *found;
  std::string known;
  for (const TradeAlgorithm& algorithm : kAlgorithms) known += words(known.empty() ? "" : ", ", algorithm.name);
  return Error{ErrorCode::unknown_algorithm,
               words("there is no recompute algorithm '", name, "'; there are: none, ", known)};
}

std::uint64_t trade_steps(const Graph& graph) {
  constexpr std::uint64_t kLeast = 50'000'000;
  constexpr std::uint64_t kAnOp = 700'000;
  constexpr std::uint64_t kMost = 4'000'000'000;
  return std::clamp(kAnOp * graph.num_ops(), kLeast, kMost);
}

Trades best_of(Trades trades) {
  std::ranges::stable_sort(
      trades, [](const Trade& a, const Trade& b) { return std::pair(a.cost, a.peak) < std::pair(b.cost, b.peak); });
  Trades best;
  for (Trade& trade : trades) {
    if (best.empty() || trade.peak < best.back().peak) best.push_back(std::move(trade));
  }
  return best;
}

}  // namespace lowtide
