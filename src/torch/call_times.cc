#include "call_times.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <numeric>

namespace lowtide::torch_runtime {
namespace {

using Runs = std::array<std::int64_t, CallTimes::kRuns>;

constexpr std::size_t kIdleCalls = 65;

std::int64_t median(Runs runs) {
  std::nth_element(runs.begin(), runs.begin() + runs.size() / 2, runs.end());
  return runs[runs.size() / 2];
}

// CPU time of this thread: some hundreds of nanoseconds to ask for, so it is asked for outside of what is timed.
std::int64_t thread_nanos() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

}  // namespace

void CallTimes::start(std::size_t calls, c10::Device where) {
  queue_.reset();
  if (!where.is_cpu()) queue_.emplace(where);
  calls_ = calls;
  taken_.assign(kRuns * calls, 0);
  running_ = true;
}

void CallTimes::begin_call() {
  if (queue_) return queue_->begin();
  thread_begin_ = thread_nanos();
  begin_ = Clock::now();
}

void CallTimes::end_call(std::size_t call, bool worked) {
  std::int64_t nanos = queue_ ? queue_->nanos() : std::chrono::nanoseconds(Clock::now() - begin_).count();
  if (!queue_ && at::get_num_threads() == 1) nanos = std::min(nanos, thread_nanos() - thread_begin_);
  taken_[counted_ * calls_ + call] = worked ? std::max<std::int64_t>(1, nanos) : 0;
}

void CallTimes::count_run() {
  if (!warm_) {
    warm_ = true;
  } else if (++counted_ == kRuns) {
    settle();
  }
}

std::int64_t CallTimes::idle_nanos() {
  CallTimes idle;
  idle.start(kIdleCalls);
  for (std::size_t call = 0; call < kIdleCalls; ++call) {
    idle.begin_call();
    idle.end_call(call, true);
  }
  const auto middle = idle.taken_.begin() + kIdleCalls / 2;
  std::nth_element(idle.taken_.begin(), middle, idle.taken_.begin() + kIdleCalls);
  return *middle;
}

void CallTimes::settle() {
  const std::int64_t idle = queue_ ? 0 : idle_nanos();
  for (std::int64_t& nanos : taken_) nanos = nanos == 0 ? 0 : std::max<std::int64_t>(1, nanos - idle);
  Runs whole;
  for (std::size_t run = 0; run < kRuns; ++run) {
    const auto first = taken_.begin() + static_cast<std::ptrdiff_t>(run * calls_);
    whole[run] = std::accumulate(first, first + static_cast<std::ptrdiff_t>(calls_), std::int64_t{0});
  }
  nanos_.resize(calls_);
  for (std::size_t call = 0; call < calls_; ++call) {
    Runs runs;
    for (std::size_t run = 0; run < kRuns; ++run) runs[run] = taken_[run * calls_ + call];
    nanos_[call] = median(runs);
  }
  const auto sum = static_cast<double>(std::accumulate(nanos_.begin(), nanos_.end(), std::int64_t{0}));
  if (sum > 0) {
    const double scale = static_cast<double>(median(whole)) / sum;
    for (std::int64_t& nanos : nanos_) nanos = std::llround(scale * static_cast<double>(nanos));
  }
  running_ = false;
  taken_ = {};
}

}  // namespace lowtide::torch_runtime
