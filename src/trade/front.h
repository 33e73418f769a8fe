// front.h: the best known trades of memory for time, as choices of what is dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/pareto.h"
#include "lowtide/limit.h"
#include "trade/drops.h"

namespace lowtide {

struct FrontPoint {
  std::int64_t cost = 0;  // of what runs again
  std::int64_t peak = 0;
  Choice choice;
};

class Front {
 public:
  // Takes the point unless one that is there is as good in both.
  void offer(std::int64_t cost, std::int64_t peak, const Choice& choice) {
    if (!is_reached(points_, cost, peak)) add_point(points_, {cost, peak, choice});
  }

  const std::vector<FrontPoint>& points() const { return points_; }  // see pareto.h

 private:
  std::vector<FrontPoint> points_;
};

// Evaluates choices and offers each to a front. What it finds is paid for with work.
class Explorer {
 public:
  Explorer(const Reruns& reruns, Front& front, Work& work)
      : front_(&front), work_(&work), dropping_(reruns), evaluation_(reruns) {}

  // Nothing if the work is at its end. The choice is mended: see Dropping.
  std::optional<Outcome> explore(Choice& choice);

 private:
  Front* front_;
  Work* work_;
  Dropping dropping_;
  Evaluation evaluation_;
};

}  // namespace lowtide
