// turnless.h: trades in which anything may run again before anything behind it.
//
// Where a step has one turn, what is worth running again is made before it and needed behind it. Where it has several,
// and windows (see windows.h) do not take them apart, there is more: the inner steps of meta-learning, whose backward
// passes are gone through again, two backward passes over one forward pass, what one model makes for two losses. Moves
// need no turn (see moves.h), so polishing finds it.
#pragma once

#include "lowtide/graph.h"
#include "lowtide/limit.h"
#include "trade/trade_bound.h"
#include "trade/trades.h"

namespace lowtide {

// Whether, as the program has it, a backward pass begins more than once.
bool has_several_turns(const Graph& graph);

// The step with its turn at the very beginning: all that may run again may do so wherever that is right.
Reruns without_turn(const Reruns& step);

// `trades` of the step, as best_of() gives them, and what is found from there.
Trades polished_without_turn(const TradeBound& bound, const Reruns& step, Trades trades, Work& work);

}  // namespace lowtide
