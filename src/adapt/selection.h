// selection.h: what the algorithms that choose blocks have in common.
#pragma once

#include <vector>

#include "lowtide/adapt.h"

namespace lowtide {

// The figures of a choice.
Selection selected(const BatchNeeds& needs, std::vector<bool> dropped);

// Whether `a` is to be taken rather than `b`: it fits and the other does not, or it is faster, or smaller.
bool is_better(const Selection& a, const Selection& b, Bytes budget);

}  // namespace lowtide
