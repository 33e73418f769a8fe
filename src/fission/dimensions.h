// dimensions.h: dimensions of a step: ops that one axis runs through, from op to op.
//
// An axis of an op goes on in another where the two share a buffer that one of them writes, cut into the same parts. So
// the batch runs through nearly all of a step, the heads of an attention through a few ops. This is the D-Graph of
// MAGIS, taken apart into what is connected, with one axis for each op: an op that could only join in a way that does
// not agree with the others stays outside.
#pragma once

#include <vector>

#include "fission/operands.h"
#include "rewrite/parts.h"

namespace lowtide {

// At least two ops, in program order. What one of them writes, the others use in the same parts, or as none of them a
// sum is read: so any of them can be a split, as far as their numbers of parts and the rest of the step allow.
using Dimension = std::vector<CutOp>;

// Each axis of each op is in one dimension at most. The largest operands first. With `exact`, only axes along which
// some parts have the bits of the whole op.
std::vector<Dimension> dimensions_of(const Operands& operands, bool exact);

}  // namespace lowtide
