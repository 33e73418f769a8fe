// limit.h: how much work an algorithm may do.
//
// Work is counted in steps of about a nanosecond, not measured in time: the same input is given up at the same point on
// every machine and on every day, so that plans stay a pure function of graph and options.
//
//   Work work(1'000'000'000);
//   if (!work.spend(pairs)) return Error{ErrorCode::work_limit, ...};
#pragma once

#include <cstdint>
#include <limits>

namespace lowtide {

class Work {
 public:
  explicit Work(std::uint64_t steps) : left_(steps) {}
  static Work unlimited() { return Work(std::numeric_limits<std::uint64_t>::max()); }

  std::uint64_t left() const { return left_; }

  // Takes `steps` from what is left; takes nothing and answers false if that is less.
  bool spend(std::uint64_t steps) {
    if (steps > left_) return false;
    left_ -= steps;
    return true;
  }

 private:
  std::uint64_t left_;
};

}  // namespace lowtide
