// descriptor.h: an open file, and the error when the system does not do what it is asked.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/words.h"
#include "lowtide/status.h"

namespace lowtide {

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags) : number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool open() const { return number_ >= 0; }
  int number() const { return number_; }
  // Zero, or the error that was found only now.
  int close() {
    const int number = std::exchange(number_, -1);
    return number < 0 || ::close(number) == 0 ? 0 : errno;
  }

 private:
  int number_;
};

// E604: "step.json: cannot read it: Is a directory".
inline Error failed(const std::filesystem::path& path, std::string_view doing, int number) {
  Error error{ErrorCode::file_error, words(path.string(), ": cannot ", doing, ": ", std::strerror(number))};
  error.system_error = number;
  return error;
}

}  // namespace lowtide
