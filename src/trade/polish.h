// polish.h: better runs near those that are known, one exact move after the other.
//
// From runs within a cost, again and again: take a few units back at random, then add what frees the most at the
// fullest moment for its cost as long as the cost allows, then take back what is not needed for that. What is no better
// is undone. Works on moves (see moves.h), so that one unit may run again at several slots.
#pragma once

#include <cstdint>

#include "lowtide/limit.h"
#include "trade/trades.h"

namespace lowtide {

// Every state on the way that `trades` do not reach is added to them; they are as best_of() gives them. Starts from the
// lowest of them within `limit`, or from nothing that runs again. Deterministic.
void polish(const Reruns& reruns, Trades& trades, std::int64_t limit, std::uint64_t seed, Work& work);

// From nothing that runs again, adds what frees the most at the fullest moment for its cost, until nothing helps. With
// a seed other than 0 chance decides too.
void fill_up(const Reruns& reruns, Trades& trades, std::uint64_t seed, Work& work);

// Takes back one unit after the other from the lowest of `trades` within `limit`, the one that saves the most for what
// it adds to the peak, down to a cost of `least`. So the trades become dense between two costs.
void thin_out(const Reruns& reruns, Trades& trades, std::int64_t limit, std::int64_t least, Work& work);

}  // namespace lowtide
