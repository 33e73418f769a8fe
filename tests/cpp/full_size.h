// full_size.h: how much of a large test is run. LOWTIDE_FULL=1 asks for all of it; otherwise it is as quick as CI
// needs.
#pragma once

#include <cstddef>
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

// How often a test repeats itself with other random numbers. Under sanitizers a fifth is enough: what they find does
// not depend on an answer, and the answers are checked without them.
inline std::size_t trials(std::size_t full, std::size_t quick) {
  return full_size() ? full : kSanitized ? quick / 5 : quick;
}

}  // namespace lowtide
