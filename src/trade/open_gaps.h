// open_gaps.h: polishing at those costs at which trades are the farthest above the bound.
#pragma once

#include <array>
#include <cstdint>

#include "lowtide/limit.h"
#include "trade/trade_bound.h"
#include "trade/trades.h"

namespace lowtide {

// Costs, as shares of the step's, at which more is tried.
inline constexpr std::array kCostShares = {0.001,  0.002, 0.003, 0.004, 0.005, 0.0065, 0.008, 0.01,  0.0125, 0.015,
                                           0.0175, 0.02,  0.025, 0.03,  0.035, 0.04,   0.045, 0.05,  0.055,  0.065,
                                           0.08,   0.09,  0.10,  0.11,  0.125, 0.14,   0.15,  0.165, 0.175,  0.19,
                                           0.20,   0.225, 0.25,  0.28,  0.30,  0.33,   0.40,  0.50,  0.70,   1.00};

std::int64_t cost_of(double share, const Reruns& reruns);

// Again and again where the distance is the widest, less where that did not help. `trades` are as best_of() gives them.
void polish_where_open(const TradeBound& bound, const Reruns& reruns, Trades& trades, Work& work);

}  // namespace lowtide
