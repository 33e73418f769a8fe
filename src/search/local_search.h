// local_search.h: better choices near those that are known.
#pragma once

#include <cstdint>

#include "search/front.h"

namespace lowtide {

// Drops one more item at a time, the one that takes the most from what is held above the target for the cost that it
// adds, until nothing is held above it or nothing helps. No choice costs more than `limit`.
void drop_towards(Explorer& explorer, Choice choice, std::int64_t target, std::int64_t limit);

// Lets one item stay after the other, the costliest to make again first, while no more is held than `peak`.
void keep_within(Explorer& explorer, Choice choice, std::int64_t peak);

// Simulated annealing from `choice` towards lower peaks at no more than `limit`: single items, pairs, and stretches of
// choices from the library or of like layers. Deterministic; takes `tries` evaluations.
void anneal(Explorer& explorer, std::span<const Choice> library, Choice choice, std::int64_t limit, std::size_t tries,
            std::uint64_t seed);

}  // namespace lowtide
