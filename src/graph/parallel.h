// parallel.h: a few pieces of work side by side.
#pragma once

#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace lowtide {

// Runs work(0), ..., work(count - 1), each on a thread of its own but the first, which the caller's runs, and returns
// when all have ended. Where the system has no more threads to give, the caller's runs the rest.
template <typename Work>
void in_parallel(std::size_t count, const Work& work) {
  std::vector<std::jthread> threads;
  std::size_t next = 1;
  try {
    for (; next < count; ++next) threads.emplace_back(work, next);
  } catch (const std::system_error&) {
  }
  if (count > 0) work(std::size_t{0});
  for (; next < count; ++next) work(next);
}

}  // namespace lowtide
