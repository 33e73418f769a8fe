// unwrap.h: the value of a Result that a test expects to have one.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "lowtide/status.h"

namespace lowtide {

// Ends the test program with the error's message if there is no value: nothing after it could be trusted.
template <typename T>
T unwrap(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "unexpected error %s\n", result.error().message.c_str());
    std::abort();
  }
  return *std::move(result);
}

}  // namespace lowtide
