// repeats.h: plans that run ops again, made to be right.
#pragma once

#include <random>

#include "draft.h"
#include "lowtide/graph.h"

namespace lowtide {

// Picks a step and a buffer that it reads, and lets the step read it from a further block, which the ops that make the
// buffer fill by running again right before; so do the ops that make what these read, where it is gone, and now and
// then where it is not. What comes later follows to the further block or stays. False if the buffer cannot be made
// again. Lives, offsets and figures are left as they were.
bool add_repeat(const Graph& graph, Draft& draft, std::mt19937_64& random);

}  // namespace lowtide
