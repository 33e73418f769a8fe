// shown_name.h: names in messages. Those of a file may be of any length; a message shows where they begin.
#pragma once

#include <string>
#include <string_view>

#include "base/words.h"

namespace lowtide {

inline std::string shown_name(std::string_view name) {
  constexpr std::size_t kShown = 200;
  if (name.size() <= kShown) return std::string(name);
  std::size_t end = kShown;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U) --end;  // not in the midst of a character
  return words(name.substr(0, end), "...");
}

inline std::string quoted_name(std::string_view name) {
  return words("'", shown_name(name), "'");
}

}  // namespace lowtide
