// text.h: the bytes of a file, in memory that simdjson may read a little beyond the end of.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>

namespace lowtide {

// What simdjson asks to be readable after the last byte. (json_rows.cc checks that it is no less.)
inline constexpr std::size_t kTextPadding = 64;

struct Text {
  std::unique_ptr<char[]> chars;
  std::size_t size = 0;
  std::size_t file_size = 0;  // before decompression: what limits are measured by

  // Room for `size` bytes and the padding, not filled in.
  static Text with_room(std::size_t size) {
    return {std::make_unique_for_overwrite<char[]>(size + kTextPadding), size, size};
  }
  static Text copy_of(std::string_view text) {
    Text copy = with_room(text.size());
    if (!text.empty()) std::memcpy(copy.chars.get(), text.data(), text.size());
    return copy;
  }
  std::string_view view() const { return {chars.get(), size}; }
};

}  // namespace lowtide
