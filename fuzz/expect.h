// expect.h: what a fuzzer holds true of whatever it is given.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace lowtide {

inline void expect(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "expected that %s\n", what);
  std::abort();
}

}  // namespace lowtide
