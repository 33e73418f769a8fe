#include "io/json_quote.h"

#include "io/utf8.h"

namespace lowtide {

void append_quoted(std::string& json, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  json += '"';
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t length = utf8_length(text);
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      json += "\\u00";
      json += c >= 0x10 ? '1' : '0';
      json += kHex[static_cast<std::size_t>(c) % 16];
    } else if (length == 0) {
      json += "\\ufffd";
    } else {
      json += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  json += '"';
}

}  // namespace lowtide
