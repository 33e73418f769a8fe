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

#include <array>
#include <cstdint>
#include <set>

#include "lowtide/limit.h"
#include "trade/front.h"

namespace lowtide {

class Mixes {
 public:
  // `work` is the explorer's.
  Mixes(const Reruns& reruns, Explorer& explorer, const Work& work)
      : reruns_(&reruns), explorer_(&explorer), work_(&work) {}

  // Offers to the explorer's front what lies between its points, the widest steps first, as far as a part of the work
  // goes. Neighbours that were tried before are not tried again.
  void explore(const Front& front);

 private:
  using Pair = std::array<std::int64_t, 4>;  // costs and peaks

  const Reruns* reruns_;
  Explorer* explorer_;
  const Work* work_;
  std::set<Pair> known_;
};

}  // namespace lowtide
