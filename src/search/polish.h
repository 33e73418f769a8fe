// polish.h: better runs near those that are known, one exact move after the other.
//
// From runs within a cost, again and again: take a few units back at random, then add what frees the most at the
// fullest moment for its cost as long as the cost allows, then take back what is not needed for that. What is no better
// is undone. Works on moves (see moves.h), so that one unit may run again at several slots.
#pragma once

#include <cstdint>

#include "lowtide/limit.h"
#include "search/trades.h"

namespace lowtide {

// The best runs found that cost no more than `limit`, at least as good as `start`. Deterministic.
Trade polish(const Replays& replays, const Trade& start, std::int64_t limit, std::uint64_t seed, Work& work);

}  // namespace lowtide
