// greedy_drops.h: one drop after the other, as compilers and many planners do it.
//
// From a step that keeps all, the item is dropped that takes the most from what is held above a target, for each unit
// of the cost that making it again adds; bytes and costs are found again after each drop, with all earlier ones in
// place. It ends when nothing is held above the target or nothing helps, and gives one trade: for several targets, each
// from the beginning.
#pragma once

#include "trade/trades.h"

namespace lowtide {

// With less work no target is come near: nothing is dropped before the gain of every drop is known.
std::uint64_t least_greedy_steps(const Reruns& reruns);

Trades greedy_trades(const TradeBound& bound, const Reruns& reruns, Work& work);

}  // namespace lowtide
