#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/words.h"
#include "trade/checkmate.h"
#include "trade/chen.h"
#include "trade/dtr.h"
#include "trade/greedy_drops.h"
#include "trade/rotor.h"
#include "trade/trades.h"

namespace lowtide {
namespace {

constexpr std::array kAlgorithms = {
    TradeAlgorithm{
        {"auto", "Cuts at many prices, a dynamic program over segments, and exact moves where the bound is far."},
        auto_trades},
    TradeAlgorithm{{"greedy", "One drop after the other, the most bytes for the cost first."}, greedy_trades},
    TradeAlgorithm{{"chen", "Checkpoints at the ends of groups of layers (Chen et al., 2016)."}, chen_trades},
    TradeAlgorithm{{"rotor", "The best persistent checkpoints of a chain of layers (Beaumont et al., 2019)."},
                   rotor_trades},
    TradeAlgorithm{{"checkmate", "The integer program of Checkmate (Jain et al., 2020), on few stretches of ops."},
                   checkmate_trades},
    TradeAlgorithm{{"dtr", "Dynamic tensor rematerialization's online rule (Kirisame et al., 2021), simulated."},
                   dtr_trades},
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

std::uint64_t trade_steps(std::size_t num_ops) {
  constexpr std::uint64_t kLeast = 50'000'000;
  constexpr std::uint64_t kAnOp = 1'000'000;
  constexpr std::uint64_t kMost = 4'000'000'000;
  return std::clamp(kAnOp * num_ops, kLeast, kMost);
}

}  // namespace lowtide
