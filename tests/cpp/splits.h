// splits.h: plans that run ops in parts, made to be right.
#pragma once

#include <random>

#include "draft.h"
#include "lowtide/graph.h"

namespace lowtide {

// A random order with some ops run again, some steps in parts, which are mixed with others as far as that is right, and
// blocks of parts; some content is swapped out. Settled.
Draft draft_with_parts(const Graph& graph, std::mt19937_64& random);

// A step that runs an op in whole becomes steps that run its parts, in the same blocks; if it can be, in that many
// parts. False if no step can. Lives, offsets and figures are left as they were.
bool split_step(const Graph& graph, Draft& draft, std::uint32_t count, std::mt19937_64& random);

// Of a whole block that is used in parts only, and always cut alike, all parts or some move to blocks of their own.
// False if there is none. As above.
bool split_block(const Graph& graph, Draft& draft, std::mt19937_64& random);

}  // namespace lowtide
