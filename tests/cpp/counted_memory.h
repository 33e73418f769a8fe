// counted_memory.h: every byte that malloc has given out in this program, whoever asked: operator new and zstd go
// through it too. Whoever links counted_memory.cc has its memory counted; sanitizers bring their own malloc, and under
// them nothing is.
#pragma once

#include <cstddef>

namespace lowtide {

std::size_t live_bytes();
std::size_t most_bytes();  // the most at a time since forget_most_bytes()
void forget_most_bytes();

// The most bytes in use at a time while `work` ran, beyond those in use before.
template <typename Work>
std::size_t most_bytes_during(Work work) {
  const std::size_t before = live_bytes();
  forget_most_bytes();
  work();
  return most_bytes() - before;
}

}  // namespace lowtide
