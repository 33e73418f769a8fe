// model_program.h: the order with the least peak by an integer program: MODeL as published, without addresses.
//
// For each step, what the tasks that run there make and use, what is held besides, and their workspaces are together at
// most the peak, which is minimized. With several tasks a step, as in the paper, a step holds the buffers and
// workspaces of all of its tasks. In a row, those of one step hold no more than they do together, and any order is
// allowed as it is: so both widths have the same least peak. One a step has narrower spans and fewer ways to say the
// same. The solver starts from program order.
#pragma once

#include "lowtide/limit.h"
#include "order/algorithms.h"
#include "published/model/spans.h"

namespace lowtide {

// Sizes are counted in a common unit, rounded down if there would be too many for the solver: the bound may then be a
// little lower than what was proven.
//
// E403 for graphs that take too many variables, and if `work` does not suffice to find an order.
Result<ProvenOrder> model_order(const Tasks& tasks, StepWidth width, Work& work);

}  // namespace lowtide
