// parallel.h: a few pieces of work side by side.
#pragma once

#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace lowtide {

// Runs work(0), ..., work(count - 1), each on a thread of its own but the first, which the caller's runs, and returns
// when all have ended. Where the system has no more threads to give, the caller's runs the rest. What one throws, such
// as std::bad_alloc, is thrown here once all have ended.
template <typename Work>
void in_parallel(std::size_t count, const Work& work) {
  std::vector<std::exception_ptr> failures(count);
  const auto guarded = [&](std::size_t i) {
    try {
      work(i);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    std::size_t next = 1;
    try {
      for (; next < count; ++next) threads.emplace_back(guarded, next);
    } catch (const std::system_error&) {
    }
    if (count > 0) guarded(0);
    for (; next < count; ++next) guarded(next);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace lowtide
