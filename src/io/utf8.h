// utf8.h: where the characters of a text end.
#pragma once

#include <cstddef>
#include <string_view>

namespace lowtide {

// How many bytes the UTF-8 character at the start of `text`, which is not empty, has; 0 if there is none.
std::size_t utf8_length(std::string_view text);

}  // namespace lowtide
