// checkmate.h: the integer program of "Checkmate" (Jain et al., 2020), on HiGHS.
//
// In stage t, stretch t of the given order runs for the first time; before it, in their order, earlier stretches may
// run again. Variables, and what they say if they are 1:
//
//   R[t][i]        stretch i runs again in stage t
//   S[t][v]        value v is held from the stage before into stage t
//   FREE[t][v][i]  in stage t, v is let go after stretch i has run again
//   U[t][i]        bytes held in stage t before stretch i may run again; never more than the budget allows
//
// and the cost of all R is the least possible. The rows say that what a stretch takes is held or made in the same
// stage, that only what is there is held further, and that only what nobody takes later in the stage or holds further
// is let go. The paper counts those hazards in one row with a large factor; here each has a row of its own, which
// allows the same whole numbers and fewer others. What is always 1 or always 0 is left out.
//
// With one op to a stretch the program is exact for steps in which no op works in place and no result is made over an
// operand: no plan in the given order is within the budget for less. So it is on steps of up to 24 ops, late ones among
// them, as in the paper. Larger steps are taken in at most 8 coarse stretches, the stages of stages.h, early and late,
// and only early ones run again: less than the paper has, which solves some of them with a commercial solver. A program
// has a part of the work; if that is used up it gives the best it has.
#pragma once

#include <optional>

#include "trade/trades.h"

namespace lowtide {

// Whether each op is a stretch by itself.
bool is_exact(const Reruns& reruns);

// The cheapest runs that the program finds within this budget; nothing if there are none, or the work does not suffice.
std::optional<Runs> checkmate_within(const Reruns& reruns, std::int64_t budget, Work& work);

// For several budgets.
Trades checkmate_trades(const Reruns& reruns, Work& work);

}  // namespace lowtide
