// price_cuts.h: what to drop at the turn if every byte that stays has a price.
//
// At a given price, the cheapest mix of keeping and making again is one cheapest cut. An item that is needed late is
// paid for, or the unit that makes it runs again and is paid for, and then so is all that the unit needs:
//
//   source --unlimited--> needed item --price--> its unit --cost--> sink
//                                                its unit --unlimited--> each item that it needs
//
// Many prices give many mixes. Identical layers have identical prices, and one cut would treat all alike; so prices
// also lean towards items that are needed again sooner, or later, by several amounts.
#pragma once

#include <vector>

#include "lowtide/limit.h"
#include "trade/drops.h"

namespace lowtide {

struct Price {
  double a_byte;  // in units of cost
  double lean;    // how much more for what is first needed at the very end than for what is needed at the turn
};

// Different choices over a wide range of prices, each once; keep_all() comes first.
std::vector<Choice> choices_by_price(const Reruns& reruns, Work& work);

}  // namespace lowtide
