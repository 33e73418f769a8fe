// read_bytes.h: the bytes of a file, a pipe or a device, as long as they may be a text or a compressed one.
#pragma once

#include <filesystem>
#include <string_view>

#include "io/text.h"
#include "lowtide/status.h"

namespace lowtide {

// Reading is bounded, whatever the path leads to: a file has at most 8 GiB, and a pipe or device, which does not tell
// its size and may never end, 1 GiB (E402). What holds a zero byte and is not compressed is no text, and is refused
// where the first one is seen (E603), so that /dev/zero and holes of sparse files are not read on. A named pipe that
// nobody writes to is waited for only so long (E604). A signal while nothing has come yet gives E604 with EINTR.
Result<Text> read_bytes(const std::filesystem::path& path);

// By its first bytes: is it compressed by zstd?
bool is_compressed(std::string_view bytes);

}  // namespace lowtide
