// full_size.h: how much of a large test is run. LOWTIDE_FULL=1 asks for all of it; otherwise it is as quick as CI
// needs.
#pragma once

#include <cstdlib>
#include <string_view>

#include "sanitized.h"

namespace lowtide {

inline bool full_size() {
  const char* const text = std::getenv("LOWTIDE_FULL");
  return text != nullptr && std::string_view(text) == "1";
}

// Sanitizers take several times the time and memory: such limits do not hold under them.
inline constexpr bool kSanitized = LOWTIDE_SANITIZED;

}  // namespace lowtide
