// raise.h: errors of the core as exceptions of lowtide.errors.
#pragma once

#include "lowtide/status.h"

namespace lowtide::python {

// E1xx InvalidGraphError, E2xx InvalidPlanError, E3xx InfeasibleError, E4xx LimitError, E5xx ValueError, E604 OSError,
// other E6xx the class named by `wrong_file`. Needs the GIL.
[[noreturn]] void raise(const Error& error, const char* wrong_file = "InvalidGraphError");

// The value of `result`, or its error raised.
template <typename T>
T take(Result<T> result, const char* wrong_file = "InvalidGraphError") {
  if (!result.ok()) raise(result.error(), wrong_file);
  return *std::move(result);
}

}  // namespace lowtide::python
