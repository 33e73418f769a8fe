// front.h: the best known trades of memory for time: no point has both a lower peak and a lower cost than another.
//
//   peak  +
//         | x            points are kept from the lowest cost to the highest,
//         |   x          and so from the highest peak to the lowest
//         |     x   x
//         +-------------- cost
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lowtide/limit.h"
#include "search/drops.h"

namespace lowtide {

struct FrontPoint {
  std::int64_t cost = 0;  // of what runs again
  std::int64_t peak = 0;
  Choice choice;
};

class Front {
 public:
  // Takes the point unless one that is there is as good in both. Answers whether it was taken.
  bool offer(std::int64_t cost, std::int64_t peak, const Choice& choice);

  const std::vector<FrontPoint>& points() const { return points_; }

  // The point of lowest peak at no more than this cost, and that of lowest cost at no more than this peak, if any.
  const FrontPoint* within_cost(std::int64_t cost) const;
  const FrontPoint* within_peak(std::int64_t peak) const;

 private:
  std::vector<FrontPoint> points_;
};

// Evaluates choices and offers each to a front. What it finds is paid for with work.
class Explorer {
 public:
  Explorer(const Replays& replays, Front& front, Work& work)
      : replays_(&replays), front_(&front), work_(&work), dropping_(replays), evaluation_(replays) {}

  // Nothing if the work is at its end. The choice is mended: see Dropping.
  std::optional<Outcome> explore(Choice& choice, std::int64_t target = std::numeric_limits<std::int64_t>::max());

  const Replays& replays() const { return *replays_; }
  const Front& front() const { return *front_; }
  Work& work() { return *work_; }

 private:
  const Replays* replays_;
  Front* front_;
  Work* work_;
  Dropping dropping_;
  Evaluation evaluation_;
};

}  // namespace lowtide
