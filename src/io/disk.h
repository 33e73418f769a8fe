// disk.h: whole files in and out, compressed or not.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "io/text.h"
#include "lowtide/status.h"

namespace lowtide {

// A compressed file may hold at most this much text. A graph's text is ten to twenty times as large as its file.
constexpr std::size_t kTextBytesPerFileByte = 16;
constexpr std::size_t max_text_bytes(std::size_t file_size) {
  return (std::size_t{24} << 20) + kTextBytesPerFileByte * file_size;
}

// The text of the file, pipe or device; if it is compressed by zstd, as its first bytes tell, what it holds; without a
// byte order mark. E402, E603 or E604; see read_bytes.h.
Result<Text> read_text(const std::filesystem::path& path);

// What `make` gives piece by piece, compressed if the name ends in ".zst", and then so large that read_text() takes it.
// The file is written beside its place and
// then moved there: nobody sees half of it, and where it fails, what was there remains. E604.
using Drain = std::function<void(std::string_view)>;
Status write_text(const std::filesystem::path& path, const std::function<void(const Drain&)>& make);

}  // namespace lowtide
