#include "swap/joint_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/dependencies.h"
#include "lowtide/lifetimes.h"
#include "rewrite/repeats.h"
#include "swap/tenants.h"

namespace lowtide {
namespace {

constexpr std::size_t kSpread = 8;  // moments that are taken at even distances
constexpr double kHighest = 20.0;   // price, as a multiple of the step's time for the bytes of its peak
constexpr int kRounds = 60;         // of the search for prices
constexpr double kEnough = 2e-4;    // of the step's time, between what is promised and what is proven
constexpr double kSafety = 1e-11;   // for sums of floating-point numbers
constexpr double kGolden = 0.618033988749895;
constexpr int kSections = 22;  // by which the search for a price narrows
constexpr int kWeightSections = 13;

// Where a concave function from 0 to `end` is the highest, and how high. `value` gives that and more.
template <typename Value>
auto highest(double end, int sections, const Value& value) {
  double low = 0;
  double high = end;
  double left = high - kGolden * (high - low);
  double right = low + kGolden * (high - low);
  auto at_left = value(left);
  auto at_right = value(right);
  auto best = std::max(value(low), value(high));
  for (int i = 0; i < sections; ++i) {
    if (at_left < at_right) {
      low = left;
      left = right;
      at_left = at_right;
      right = low + kGolden * (high - low);
      at_right = value(right);
    } else {
      high = right;
      right = left;
      at_right = at_left;
      left = high - kGolden * (high - low);
      at_left = value(left);
    }
    best = std::max({best, at_left, at_right});
  }
  return best;
}

struct Promise {
  double amount;
  Prices prices;
  bool operator<(const Promise& other) const { return amount < other.amount; }
};

}  // namespace

JointBound::JointBound(const Graph& graph, const Reruns& reruns, const Swap& swap) {
  const Leaving leaving{movable(graph, swap.may_leave, swap.least), swap.link};
  std::vector<BufferId> away;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    if (buffer.planned()) continue;
    if (leaving.may[id.index()]) {
      away.push_back(id);
    } else {
      fixed_ += static_cast<double>(buffer.size.count());
    }
  }
  least_ = Bytes(static_cast<std::uint64_t>(fixed_)) + operand_bound(graph, away);
  std::vector<std::int64_t> costs;
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    costs.push_back(static_cast<std::int64_t>(graph.op(id).cost.count()));
    step_time_ += static_cast<double>(costs.back());
  }
  const double bytes = std::max(1.0, static_cast<double>(reruns.peak));
  const auto rate = [](Bytes a_second) { return 1e9 / static_cast<double>(a_second.count()); };
  highest_price_ =
      std::max(kHighest * step_time_ / bytes, 2 * (rate(swap.link.store_per_second) + rate(swap.link.load_per_second)));
  std::vector<Position> at = fullest_moments(reruns);
  for (std::size_t i = 0; i < kSpread; ++i) at.push_back(static_cast<Position>(reruns.num_ops() * i / kSpread));
  std::ranges::sort(at);
  const auto twice = std::ranges::unique(at);
  at.erase(twice.begin(), twice.end());
  const Dependencies needs = dependencies(graph);
  const Repeats repeats(graph);
  for (const Position p : at) {
    if (p < reruns.num_ops()) moments_.emplace_back(graph, needs, repeats, costs, &leaving, reruns.order[p]);
  }
  planes_.resize(moments_.size());
}

JointBound::Best JointBound::best_prices(std::size_t moment, double bytes) const {
  const auto lowest = [&](const Prices& prices) {
    double amount = std::numeric_limits<double>::infinity();
    for (const Mix& mix : planes_[moment]) amount = std::min(amount, mix.at(prices));
    return Promise{amount - prices.a_byte * bytes, prices};
  };
  const Promise best = highest(1, kWeightSections, [&](double before) {
    return highest(1, kWeightSections, [&](double behind) {
      return highest(highest_price_, kSections, [&](double a_byte) { return lowest({a_byte, before, behind}); });
    });
  });
  return {best.prices, best.amount};
}

double JointBound::proven(double bytes) const {
  double most = step_time_;
  for (const Line& line : lines_) most = std::max(most, line.cut - line.a_byte * bytes);
  return most;
}

Nanos JointBound::least_time(Bytes memory, Work& work) {
  if (memory < least_) return Nanos::max();
  const double bytes = static_cast<double>(memory.count()) - fixed_;
  const auto pay = [&](std::size_t moment, const Prices& prices) {
    const std::optional<LeastPaid> paid = moments_[moment].least_paid(prices, work);
    if (!paid) return false;
    lines_.push_back({paid->amount, prices.a_byte});
    planes_[moment].push_back(paid->mix);
    return true;
  };
  std::vector<Best> best;
  for (std::size_t moment = 0; moment < moments_.size(); ++moment) {
    if (planes_[moment].empty() && !pay(moment, {highest_price_ / 4, 0.5, 0.5})) break;
    best.push_back(best_prices(moment, bytes));
  }
  for (int round = 0; round < kRounds && !best.empty(); ++round) {
    const auto next = std::ranges::max_element(best, {}, &Best::promise);
    if (next->promise <= proven(bytes) + kEnough * step_time_) break;
    const auto moment = static_cast<std::size_t>(next - best.begin());
    if (!pay(moment, next->prices)) break;
    *next = best_prices(moment, bytes);
  }
  return Nanos(static_cast<std::uint64_t>(std::max(step_time_, std::floor(proven(bytes) * (1 - kSafety)))));
}

Bytes JointBound::least_memory(Nanos time) const {
  double bytes = 0;
  for (const Line& line : lines_) {
    if (line.a_byte > 0) bytes = std::max(bytes, (line.cut - static_cast<double>(time.count())) / line.a_byte);
  }
  return std::max(least_, Bytes(static_cast<std::uint64_t>(std::floor((fixed_ + bytes) * (1 - kSafety)))));
}

}  // namespace lowtide
