// chen.h: checkpoints at the ends of groups of layers, as in "Training deep nets with sublinear memory cost" (Chen et
// al., 2016).
//
// The early ops are a chain of stages, and the chain is cut into groups. What crosses the end of a group stays until it
// is no longer needed; all else that is made in the group is dropped, and the whole group runs again, once, right
// before the first late op that needs something of it. The last group stays as it is: it is needed at once.
//
// The cuts are those of the paper: groups of as many stages each, for several numbers of groups about the square root
// of the number of stages; and groups that end as soon as what they would hold for the late ops exceeds a number of
// bytes, for several such numbers. Here stages end where few items cross, of a fine and a coarse chain, and what cannot
// run again stays.
#pragma once

#include "trade/trades.h"

namespace lowtide {

Trades chen_trades(const TradeBound& bound, const Reruns& reruns, Work& work);

}  // namespace lowtide
