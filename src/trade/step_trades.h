// step_trades.h: what an algorithm finds in a step: in all of it and, where it has several turns, window by window.
#pragma once

#include <functional>
#include <vector>

#include "lowtide/recompute.h"
#include "trade/trades.h"

namespace lowtide {

using FindTrades = std::function<Trades(const Reruns& reruns, Work& work)>;

// In the step as a whole. The step as it is comes first.
Trades trades_in(const Reruns& step, const FindTrades& find, Work& work);

// What is found in windows (see windows.h), put together; `work_for` gives each its work, by its number of ops.
Trades trades_in_windows(const Reruns& step, const FindTrades& find,
                         const std::function<Work(std::size_t ops)>& work_for);

// The ops of a trade as they run.
Steps steps_of(const Reruns& step, const Trade& trade);

// For an algorithm as recompute.h knows it: the steps of all that is found in the step and, if that is asked for, in
// its windows, with half of the work each.
std::vector<Steps> steps_found(const Reruns& step, bool by_windows, const FindTrades& find, Work& work);

}  // namespace lowtide
