// json_object.h: a JSON object put together field by field, as --json prints it.
//
//   JsonObject().add("ok", true).add("arena_bytes", plan.arena).text()     {"ok": true, "arena_bytes": 192}
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/units.h"

namespace lowtide {

class JsonObject {
 public:
  // Text that is not UTF-8, such as a path can be, has its wrong bytes replaced by U+FFFD.
  JsonObject& add(std::string_view key, std::string_view value);
  JsonObject& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
  JsonObject& add(std::string_view key, double value);
  JsonObject& add(std::string_view key, bool value) { return add_raw(key, value ? "true" : "false"); }
  JsonObject& add(std::string_view key, std::nullptr_t) { return add_raw(key, "null"); }
  JsonObject& add(std::string_view key, const JsonObject& value) { return add_raw(key, value.text()); }
  JsonObject& add(std::string_view key, const std::vector<JsonObject>& values);
  JsonObject& add(std::string_view key, const std::vector<std::int64_t>& numbers);
  template <std::unsigned_integral Number>
  JsonObject& add(std::string_view key, Number value) {
    return add_raw(key, std::to_string(value));
  }
  template <typename Tag>
  JsonObject& add(std::string_view key, Amount<Tag> value) {
    return add(key, value.count());
  }
  template <typename Tag>
  JsonObject& add(std::string_view key, Id<Tag> value) {
    return add(key, value.value());
  }

  std::string text() const { return "{" + fields_ + "}"; }

 private:
  JsonObject& add_raw(std::string_view key, std::string_view json);

  std::string fields_;
};

}  // namespace lowtide
