#include "clock.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "figures.h"

namespace emulated_cuda {
namespace {

double host = 0;

}  // namespace

double Engine::end_of(double ready, double seconds) {
  if (seconds <= 0) return ready;
  double begin = ready;
  auto next = busy_.upper_bound(ready);
  if (next != busy_.begin()) begin = std::max(begin, std::prev(next)->second);
  for (; next != busy_.end() && next->first < begin + seconds; ++next) begin = std::max(begin, next->second);
  double end = begin + seconds, from = begin;
  if (next != busy_.end() && next->first == end) {
    const double joined = next->second;
    next = busy_.erase(next);
    if (next != busy_.begin() && std::prev(next)->second == from) from = std::prev(next)->first;
    busy_[from] = joined;
    return end;
  }
  if (next != busy_.begin() && std::prev(next)->second == from) from = std::prev(next)->first;
  busy_[from] = end;
  return end;
}

Engine& engine(EngineKind kind) {
  static auto* const engines = new std::array<Engine, 4>;
  return (*engines)[static_cast<std::size_t>(kind)];
}

double host_time() {
  return host;
}
void host_waits_until(double time) {
  host = std::max(host, time);
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double link_seconds(std::size_t bytes) {
  const double rate = figures().link_bytes_per_second;
  return rate > 0 ? static_cast<double>(bytes) / rate : 0;
}

}  // namespace emulated_cuda
