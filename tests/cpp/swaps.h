// swaps.h: plans that move content out of memory and back, made to be right.
#pragma once

#include <random>
#include <vector>

#include "draft.h"
#include "lowtide/graph.h"

namespace lowtide {

// A random order with some ops run again, content that is swapped out, and homes in tiers; settled.
Draft draft_with_swaps(const Graph& graph, std::mt19937_64& random);

// One or two tiers, with links of about the speed of the ops of random graphs.
void add_tiers(Draft& draft, std::mt19937_64& random);

// Picks a planned block and two steps that use it. After the first its content is stored in a slot of a tier, and
// before the second it is loaded into a further block, which what comes later uses. False if there is no room between
// them. Lives, offsets and figures are left as they were.
bool swap_out(const Graph& graph, Draft& draft, std::mt19937_64& random);

// Moves the home of a resident buffer to a tier. Steps in a row that use it share a block in memory: it is loaded
// before, and stored afterwards if they have changed it. False if there is no home in memory. As above.
bool move_home(const Graph& graph, Draft& draft, std::mt19937_64& random);

// By issue, stores before loads, at random where that says nothing.
void sort_transfers(Draft& draft, std::mt19937_64& random);

// Those that could have their home in a tier.
std::vector<BufferId> resident_buffers(const Graph& graph);

}  // namespace lowtide
