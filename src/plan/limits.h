// limits.h: how much work each search of a plan gets, by the effort and the time that its options allow.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stop_token>

#include "lowtide/limit.h"
#include "lowtide/plan.h"

namespace lowtide {

class Limits {
 public:
  // The time of the options begins now.
  explicit Limits(const PlanOptions& options)
      : effort_(options.effort),
        deadline_(options.time_limit ? Work::Clock::now() + *options.time_limit : Work::Clock::time_point::max()),
        stop_(options.stop) {}

  // For a search that is worth so many steps.
  std::uint64_t steps(std::uint64_t worth) const {
    constexpr double kMost = 1e18;
    return static_cast<std::uint64_t>(std::clamp(std::round(static_cast<double>(worth) * effort_), 1.0, kMost));
  }
  Work work(std::uint64_t worth) const {
    Work work(steps(worth), deadline_);
    work.stop_with(stop_);
    return work;
  }

  // None without a limit.
  std::optional<std::chrono::milliseconds> time_left() const {
    if (deadline_ == Work::Clock::time_point::max()) return std::nullopt;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Work::Clock::now());
    return std::max(left, std::chrono::milliseconds(0));
  }
  bool stopped() const { return stop_.stop_requested(); }

 private:
  double effort_;
  Work::Clock::time_point deadline_;
  std::stop_token stop_;
};

}  // namespace lowtide
