#include "io/json_writer.h"

#include <array>
#include <charconv>
#include <utility>

namespace lowtide {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;

// How many bytes the UTF-8 character at the start of `text` has; 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xC2 ? 0
                             : lead < 0xE0 ? 2
                             : lead < 0xF0 ? 3
                             : lead < 0xF5 ? 4
                                           : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond the last code point.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) || (lead == 0xF0 && byte(1) < 0x90) ||
      (lead == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

}  // namespace

void JsonWriter::open(std::string_view format, unsigned version) {
  text_ += "{\"format\":";
  append_quoted(format);
  text_ += ",\n\"version\":";
  append_number(std::uint64_t{version});
}

void JsonWriter::close() {
  text_ += "}\n";
  drain_(text_);
  text_.clear();
}

void JsonWriter::open_list(std::string_view name) {
  text_ += ",\n\"";
  text_ += name;
  text_ += "\":[";
  first_row_ = true;
}

void JsonWriter::close_list() {
  text_ += ']';
}

void JsonWriter::open_object(std::string_view name) {
  text_ += ",\n\"";
  text_ += name;
  text_ += "\":{";
  first_field_ = true;
}

void JsonWriter::open_row() {
  text_ += std::exchange(first_row_, false) ? "\n{" : ",\n{";
  first_field_ = true;
}

void JsonWriter::close_row() {
  text_ += '}';
  if (text_.size() < kPiece) return;
  drain_(text_);
  text_.clear();
}

void JsonWriter::field(std::string_view name, std::string_view text) {
  key(name);
  append_quoted(text);
}

void JsonWriter::field(std::string_view name, bool flag) {
  key(name);
  text_ += flag ? "true" : "false";
}

void JsonWriter::field(std::string_view name, std::uint64_t number) {
  key(name);
  append_number(number);
}

void JsonWriter::key(std::string_view name) {
  if (!std::exchange(first_field_, false)) text_ += ',';
  text_ += '"';
  text_ += name;
  text_ += "\":";
}

void JsonWriter::append_number(std::uint64_t number) {
  std::array<char, 24> digits;
  text_.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

void JsonWriter::append_number(std::int64_t number) {
  std::array<char, 24> digits;
  text_.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

void JsonWriter::append_quoted(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  text_ += '"';
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t length = utf8_length(text);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      text_ += "\\u00";
      text_ += c >= 0x10 ? '1' : '0';
      text_ += kHex[static_cast<std::size_t>(c) % 16];
    } else if (length == 0) {
      text_ += "\\ufffd";  // not UTF-8, as JSON must be
    } else {
      text_ += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  text_ += '"';
}

}  // namespace lowtide
