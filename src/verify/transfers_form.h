// transfers_form.h: are these tiers and transfers at all? What the symbolic execution takes for granted of them.
#pragma once

#include "lowtide/graph.h"
#include "lowtide/plan.h"

namespace lowtide {

// Every link moves something; transfers are listed as they begin, and each goes between memory and a tier, for one
// buffer or one part of it, while both of its blocks live: E201, E207 and E227. The blocks' own form must have been
// checked.
//
// Before a step, blocks in tiers come and go first, then its stores begin and are waited for, then blocks in memory
// come and go, and then its loads begin and are waited for. So these are the lives at least, but that a home is always
// there:
//
//            from                           to
//   store    begin < issue,  end >= wait    begin <= issue,  end > wait
//   load     begin <= issue, end > wait     begin <= issue,  end > wait
//
// What is filled may also end with the plan, where it is waited for at the end: issue < end = wait.
Status check_transfers(const Graph& graph, const Plan& plan);

}  // namespace lowtide
