// between.h: what lies between two trades that are next to each other.
//
// Two neighbours of a front differ in what they drop. Dropping a part of that, from the first layer on or from the last
// one back, costs less than the one and needs less than the other:
//
//   cheaper one   drops a                  mixed   a b,  a b c
//   lower one     drops a, b, c, d                 a d,  a c d
//
// Where the step between two peaks is wide, the half of what differs is tried, then the halves of that.
#pragma once

#include "trade/front.h"

namespace lowtide {

// Offers to the front what lies between its points, as far as the explorer's work goes.
void explore_between(const Reruns& reruns, const Front& front, Explorer& explorer);

}  // namespace lowtide
