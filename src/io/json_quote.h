// json_quote.h: text as a JSON string.
#pragma once

#include <string>
#include <string_view>

namespace lowtide {

// Adds `text` to `json`, quoted and escaped. JSON must be UTF-8: a byte that is not becomes U+FFFD.
void append_quoted(std::string& json, std::string_view text);

}  // namespace lowtide
