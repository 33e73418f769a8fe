// words.h: error messages from their parts: words("op ", id, " needs ", bytes, " bytes").
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "lowtide/units.h"

namespace lowtide {
namespace words_detail {

inline void append(std::string& text, std::string_view part) {
  text += part;
}
template <std::integral Number>
void append(std::string& text, Number part) {
  text += std::to_string(part);
}
template <typename Tag>
void append(std::string& text, Id<Tag> part) {
  text += std::to_string(part.value());
}
template <typename Tag>
void append(std::string& text, Amount<Tag> part) {
  text += std::to_string(part.count());
}

}  // namespace words_detail

template <typename... Parts>
std::string words(const Parts&... parts) {
  std::string text;
  (words_detail::append(text, parts), ...);
  return text;
}

}  // namespace lowtide
