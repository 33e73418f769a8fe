// joint_bound.h: how fast no plan can be within some bytes, whatever runs again and whatever leaves memory.
//
// Each moment, price of a byte and weights of the link before and behind it give a cut that no plan pays less than
// (moment.h):
//
//   time + price * bytes >= cut
//
// So for the bytes of a budget, time >= cut - price * bytes, and the highest of many such lines counts. The cut is
// concave in price and weights, and each mix that attains one is a plane above it. So the best prices are searched for
// where the lowest of the planes known so far is the highest, at the moment at which it promises the most, until it
// promises little more than has been proven:
//
//   proven   \_   planes above      time
//              \_/\_
//                x  \_              next prices: x
#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/limit.h"
#include "lowtide/plan.h"
#include "trade/moment.h"
#include "trade/reruns.h"

namespace lowtide {

class JointBound {
 public:
  // Costs are those of `graph`; `reruns` is made from it.
  JointBound(const Graph& graph, const Reruns& reruns, const Swap& swap);

  // No plan whose resident bytes and arena are within `memory` takes less time: Nanos::max() where there is no plan.
  // With more work, or asked again, it finds a better bound.
  Nanos least_time(Bytes memory, Work& work);

  // No plan that takes no longer than `time` needs less, resident bytes and arena. With the lines that were found so
  // far.
  Bytes least_memory(Nanos time) const;

 private:
  struct Line {
    double cut;
    double a_byte;
  };
  struct Best {
    Prices prices;
    double promise;
  };

  // Where the planes of a moment promise the most.
  Best best_prices(std::size_t moment, double bytes) const;
  double proven(double bytes) const;

  double fixed_ = 0;  // resident bytes that may not leave
  Bytes least_;       // no plan needs less
  double step_time_ = 0;
  double highest_price_ = 0;
  std::vector<Moment> moments_;
  std::vector<std::vector<Mix>> planes_;  // by moment
  std::vector<Line> lines_;
};

}  // namespace lowtide
