// trades.h: what can be had for how much: points of a front, as runs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/limit.h"
#include "trade/reruns.h"
#include "trade/trade_bound.h"

namespace lowtide {

struct Trade {
  std::int64_t cost = 0;  // of what runs again
  std::int64_t peak = 0;
  Runs runs;
};
using Trades = std::vector<Trade>;  // from the lowest cost and highest peak to the highest cost and lowest peak

// Only those that no other one beats, sorted; of equal ones the first.
Trades best_of(Trades trades);

// Measures runs exactly, and collects what they trade.
class Collected {
 public:
  Collected(const Reruns& reruns, Work& work) : reruns_(&reruns), work_(&work) {}

  // False if the work is at its end.
  bool add(const Runs& runs);

  Trades best() && { return best_of(std::move(trades_)); }

 private:
  const Reruns* reruns_;
  Work* work_;
  Trades trades_;
};

struct TradeAlgorithm {
  std::string_view name;
  std::string_view description;
  Trades (*run)(const TradeBound& bound, const Reruns& reruns, Work& work);
  bool anywhere = false;  // it is given the step without its turn as well: late ops may run again too
};
// "auto" first, then those to compare with.
std::span<const TradeAlgorithm> trade_algorithms();

// How much work looking for trades is worth: below a second for a thousand ops, and a few for more.
std::uint64_t trade_steps(std::size_t num_ops);

// What the cheap ones of the others find, cuts at many prices, a dynamic program over segments, then polishing where
// the bound is far, as far as the work goes. What is found does not depend on any budget.
Trades auto_trades(const TradeBound& bound, const Reruns& reruns, Work& work);

}  // namespace lowtide
