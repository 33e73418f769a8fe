// made_again.h: what is made again behind the turn, in parts, because it is too large to be there whole.
//
// The forward pass makes it and the backward pass reads it. As long as one buffer serves both, no split can hold all of
// its uses: the loss lies between them. Made again, each pass has its own.
#pragma once

#include "fission/operands.h"
#include "lowtide/recompute.h"
#include "lowtide/units.h"

namespace lowtide {

// Every op once, in program order, and again those that make what is large: an operand of more than an eighth of `most`
// of an op that needs more than `most`, made before the backward pass and read in it. Only ops that have an axis and
// may run again.
Steps steps_with_large_made_again(const Operands& operands, Bytes most);

}  // namespace lowtide
