#include "trade/trade_bound.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/dependencies.h"
#include "lowtide/lifetimes.h"
#include "rewrite/repeats.h"
#include "trade/moment.h"

namespace lowtide {
namespace {

constexpr int kPrices = 12;
constexpr double kShares[] = {0.01, 0.02, 0.05, 0.10, 0.15,
                              0.20, 0.25, 0.33, 0.50};  // costs for which prices are refined
constexpr int kRefinements = 6;
constexpr double kLowest = 0.01;
constexpr double kHighest = 20.0;

}  // namespace

TradeBound::TradeBound(const Graph& graph, const Reruns& reruns, Work& work)
    : operands_(static_cast<std::int64_t>(operand_bound(graph).count())) {
  if (reruns.peak == 0 || reruns.total_cost == 0) return;
  const Dependencies needs = dependencies(graph);
  const Repeats repeats(graph);
  std::vector<std::int64_t> costs(graph.num_ops());
  for (Position p = 0; p < reruns.num_ops(); ++p) costs[reruns.order[p].index()] = reruns.cost[p];
  std::vector<Moment> moments;
  for (const Position at : fullest_moments(reruns)) {
    moments.emplace_back(graph, needs, repeats, costs, nullptr, reruns.order[at]);
  }
  const auto add = [&](std::size_t moment, double a_byte) {
    const std::optional<LeastPaid> paid = moments[moment].least_paid({.a_byte = a_byte}, work);
    if (!paid) return;
    const double again = paid->amount - static_cast<double>(reruns.total_cost);
    lines_.push_back({again / a_byte, 1.0 / a_byte, moment});
  };
  // A byte of the peak costs about what the step does, divided by its bytes: prices around that.
  const double middle = static_cast<double>(reruns.total_cost) / static_cast<double>(reruns.peak);
  for (std::size_t moment = 0; moment < moments.size(); ++moment) {
    for (int i = 0; i < kPrices; ++i) {
      add(moment, middle * kLowest * std::pow(kHighest / kLowest, static_cast<double>(i) / (kPrices - 1)));
    }
  }
  for (const double share : kShares) {
    const double cost = share * static_cast<double>(reruns.total_cost);
    double factor = std::pow(kHighest / kLowest, 0.5 / (kPrices - 1));
    for (int i = 0; i < kRefinements; ++i, factor = std::sqrt(factor)) {
      const auto best = std::ranges::max_element(lines_, {}, [&](const Line& line) { return line.at(cost); });
      if (best == lines_.end()) return;
      const Line from = *best;
      for (const double change : {factor, 1.0 / factor}) add(from.moment, change / from.slope);
    }
  }
}

std::int64_t TradeBound::least_peak(std::int64_t cost) const {
  double least = static_cast<double>(operands_);
  for (const Line& line : lines_) least = std::max(least, line.at(static_cast<double>(cost)));
  return static_cast<std::int64_t>(std::floor(least * (1 - 1e-12)));
}

}  // namespace lowtide
