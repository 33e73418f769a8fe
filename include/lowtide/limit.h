// limit.h: how much work an algorithm may do.
//
// Work is counted in steps of about a nanosecond, not measured in time: the same input is given up at the same point on
// every machine and on every day, so that plans stay a pure function of graph and options. A limit in time can be set
// besides; whoever sets it gives that up.
//
//   Work work(1'000'000'000);
//   if (!work.spend(pairs)) return Error{ErrorCode::work_limit, ...};
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <stop_token>
#include <utility>

namespace lowtide {

class Work {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Work(std::uint64_t steps, Clock::time_point deadline = Clock::time_point::max())
      : left_(steps), deadline_(deadline) {}
  static Work unlimited() { return Work(std::numeric_limits<std::uint64_t>::max()); }

  // At most this much of what is left; all else is the same. What is spent of it is to be spent here too.
  Work part(std::uint64_t steps) const {
    Work some = *this;
    some.left_ = std::min(steps, left_);
    return some;
  }

  // Nothing is left any more as soon as somebody asks this token to stop.
  void stop_with(std::stop_token stop) { stop_ = std::move(stop); }

  // Somebody who waits for a search is told of what it finds: so high a peak at such a cost. No search depends on that.
  using Listener = std::function<void(std::int64_t cost, std::int64_t peak)>;
  void tell(const Listener& listener) { listener_ = &listener; }  // which must outlive this and its parts
  void found(std::int64_t cost, std::int64_t peak) const {
    if (listener_ != nullptr) (*listener_)(cost, peak);
  }

  std::uint64_t left() const { return left_; }
  Clock::time_point deadline() const { return deadline_; }  // the end of time, if there is none

  // Takes `steps` from what is left; takes nothing and answers false if that is less.
  bool spend(std::uint64_t steps) {
    if (stop_.stop_requested() || (deadline_ != Clock::time_point::max() && late(steps))) left_ = 0;
    if (steps > left_) return false;
    left_ -= steps;
    return true;
  }

 private:
  // The clock is read once in so many steps: reading it takes longer than most of them.
  static constexpr std::uint64_t kStepsALook = 100'000;
  bool late(std::uint64_t steps) {
    since_look_ += steps;
    if (since_look_ < kStepsALook) return false;
    since_look_ = 0;
    return Clock::now() >= deadline_;
  }

  std::uint64_t left_;
  Clock::time_point deadline_;
  std::stop_token stop_;
  const Listener* listener_ = nullptr;
  std::uint64_t since_look_ = kStepsALook;
};

// Runs with a part of the work, and takes from it what was used.
template <typename Run>
auto with_part(Work& work, std::uint64_t steps, Run run) {
  Work part = work.part(steps);
  const std::uint64_t given = part.left();
  auto result = run(part);
  work.spend(given - part.left());
  return result;
}

}  // namespace lowtide
