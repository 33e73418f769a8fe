// call_times.h: how long each call of a program takes, found in its first steps.
//
//   run           0        1     2     3     4     5
//   call k   warms up   [  timed five times          ]  ->  its time, and nothing is timed from then on
//
// A call's time is its median, scaled: what delays one call in one run delays another one in the next, so medians add
// up to less than any run takes. Scaled, they add up to the median of the runs. A run that fails, or does not go as
// planned, does not count; nor does, on one thread, what other processes take away in the middle of a call. Another
// device than the CPU has a clock of its own.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "queue_clock.h"

namespace lowtide::torch_runtime {

class CallTimes {
 public:
  static constexpr std::size_t kRuns = 5;

  void start(std::size_t calls, c10::Device where = c10::Device(c10::kCPU));
  bool running() const { return running_; }

  void begin_call();
  // `worked`: what a call takes that had nothing to do says nothing about its operator.
  void end_call(std::size_t call, bool worked);
  // The run went as planned.
  void count_run();

  // Nanoseconds by call, 0 for one that had nothing to do; empty until they are known.
  const std::vector<std::int64_t>& nanos() const { return nanos_; }

 private:
  using Clock = std::chrono::steady_clock;

  void settle();
  // What a call shows that does nothing: the clocks' own time.
  static std::int64_t idle_nanos();

  std::optional<QueueClock> queue_;  // of another device than the CPU
  bool running_ = false;
  bool warm_ = false;
  std::size_t calls_ = 0;
  std::size_t counted_ = 0;  // runs
  Clock::time_point begin_;
  std::int64_t thread_begin_ = 0;
  std::vector<std::int64_t> taken_;  // in the k-th of the runs by all calls, from k * calls_ on
  std::vector<std::int64_t> nanos_;
};

}  // namespace lowtide::torch_runtime
