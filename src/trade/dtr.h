// dtr.h: the online rule of "Dynamic tensor rematerialization" (Kirisame et al., 2021), simulated under a byte budget.
//
// The ops run one by one in the given order, and nothing is known of those to come. Where what an op makes does not fit
// beside what is held, the item with the lowest
//
//   h = cost of its evicted neighbourhood / (bytes * time since it was last touched)
//
// is evicted, until it fits. The neighbourhood (e* in the paper) is the item's unit and, through evicted items only,
// all that would have to run again before it, and all evicted that would need it. An op whose operand is evicted has it
// made again first, and so on down; what one op has open is never evicted. Who has no user left is given up at once,
// and made again if something else is to be made again from it (the paper's eager eviction).
//
// By name it is tried twice, with what late ops make evictable, as in the paper, and without; as a part of `auto` it is
// given early ones alone. Ours
// differs in this: only what may run again by its operator's nature, and at every place where it could be wanted, can
// be evicted; and where nothing is left to evict the run goes on above the budget instead of failing, and is judged
// by what it then needs. A run whose repeats cost twice the step is given up.
#pragma once

#include "trade/trades.h"

namespace lowtide {

Trades dtr_trades(const TradeBound& bound, const Reruns& reruns, Work& work);

}  // namespace lowtide
