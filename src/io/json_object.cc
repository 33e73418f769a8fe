#include "io/json_object.h"

#include <array>
#include <charconv>

#include "io/json_quote.h"

namespace lowtide {

JsonObject& JsonObject::add_raw(std::string_view key, std::string_view json) {
  if (!fields_.empty()) fields_ += ", ";
  append_quoted(fields_, key);
  fields_ += ": ";
  fields_ += json;
  return *this;
}

JsonObject& JsonObject::add(std::string_view key, std::string_view value) {
  std::string json;
  append_quoted(json, value);
  return add_raw(key, json);
}

JsonObject& JsonObject::add(std::string_view key, double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  return add_raw(key, {digits.data(), end});
}

JsonObject& JsonObject::add(std::string_view key, const std::vector<JsonObject>& values) {
  std::string json;
  for (const JsonObject& value : values) json += (json.empty() ? "" : ", ") + value.text();
  return add_raw(key, "[" + json + "]");
}

JsonObject& JsonObject::add(std::string_view key, const std::vector<std::int64_t>& numbers) {
  std::string json;
  for (const std::int64_t number : numbers) json += (json.empty() ? "" : ", ") + std::to_string(number);
  return add_raw(key, "[" + json + "]");
}

}  // namespace lowtide
