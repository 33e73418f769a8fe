#include "io/json_writer.h"

#include <array>
#include <charconv>
#include <utility>

#include "io/json_quote.h"

namespace lowtide {
namespace {

constexpr std::size_t kWrittenAtOnce = std::size_t{1} << 20;

}  // namespace

void JsonWriter::open() {
  text_ += '{';
}

void JsonWriter::open(std::string_view format, unsigned version) {
  open();
  text_ += "\"format\":";
  append_quoted(text_, format);
  text_ += ",\n\"version\":";
  append_number(std::uint64_t{version});
  first_section_ = false;
}

void JsonWriter::close() {
  text_ += "}\n";
  drain_(text_);
  text_.clear();
}

void JsonWriter::open_section(std::string_view name, char bracket) {
  text_ += std::exchange(first_section_, false) ? "\"" : ",\n\"";
  text_ += name;
  text_ += "\":";
  text_ += bracket;
}

void JsonWriter::open_list(std::string_view name) {
  open_section(name, '[');
  first_row_ = true;
}

void JsonWriter::close_list() {
  text_ += ']';
}

void JsonWriter::open_object(std::string_view name) {
  open_section(name, '{');
  first_field_ = true;
}

void JsonWriter::open_row() {
  text_ += std::exchange(first_row_, false) ? "\n{" : ",\n{";
  first_field_ = true;
}

void JsonWriter::close_row() {
  text_ += '}';
  if (text_.size() < kWrittenAtOnce) return;
  drain_(text_);
  text_.clear();
}

void JsonWriter::field(std::string_view name, std::string_view text) {
  key(name);
  append_quoted(text_, text);
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

}  // namespace lowtide
