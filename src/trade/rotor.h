// rotor.h: the best persistent checkpoints of a chain, by dynamic programming: "Optimal checkpointing for heterogeneous
// chains" (Beaumont et al., 2019), the method of rotor.
//
// The early ops are a chain of stages (see stages.h), each with the cost of running it, the bytes that it holds for the
// late ops, the bytes that cross its end, and what it takes to run it, early and late. With m bytes and what stage s
// takes at hand, the stages from s to t are run early and late in one of two ways:
//
//   all    run s and hold all that it makes for late;  then s+1 .. t with what that leaves;      then s late
//   part   run s .. k-1 and hold only what crosses into k;  then k .. t with what that leaves;  then s .. k-1 from anew
//
//   least[s][t][m] = min( cost(s) + least[s+1][t][m - held(s)],
//                         min over k: cost(s .. k-1) + least[k][t][m - crossing(s, k)] + least[s][k-1][m] )
//
// each where what is needed meanwhile fits into m. Bytes are counted in slots, rounded up.
//
// Stages of a captured graph are not quite a chain: several items may cross, also several stages, and what cannot run
// again stays. What the program finds is therefore made into runs and measured, for several m, and for a fine and a
// coarse chain.
#pragma once

#include "trade/trades.h"

namespace lowtide {

Trades rotor_trades(const TradeBound& bound, const Reruns& reruns, Work& work);

}  // namespace lowtide
