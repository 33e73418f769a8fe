// search_limits.h: the threads and the time of a search, from arguments to options.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace lowtide::cli {

template <typename Arguments, typename Options>
void set_search_limits(const Arguments& arguments, Options& options) {
  options.threads = arguments.threads > 0 ? arguments.threads : std::max(1u, std::thread::hardware_concurrency());
  if (arguments.time_limit) {
    options.time_limit = std::chrono::milliseconds(static_cast<std::int64_t>(*arguments.time_limit * 1000));
  }
}

}  // namespace lowtide::cli
