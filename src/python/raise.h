// raise.h: errors of the core as exceptions of lowtide.errors.
#pragma once

#include "lowtide/status.h"

namespace lowtide::python {

// E1xx InvalidGraphError, E2xx InvalidPlanError, E3xx InfeasibleError, E4xx LimitError, E5xx ValueError. Needs the GIL.
[[noreturn]] void raise(const Error& error);

// The value of `result`, or its error raised.
template <typename T>
T take(Result<T> result) {
  if (!result.ok()) raise(result.error());
  return *std::move(result);
}

}  // namespace lowtide::python
