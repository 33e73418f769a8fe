// file_error.h: why a file could not be made, read or written.
#pragma once

#include <string>
#include <system_error>
#include <utility>

namespace lowtide::tier {

// code() is the system's error; what() says what was tried, where, and why it failed.
class FileError : public std::system_error {
 public:
  FileError(int error, const std::string& tried, std::string folder)
      : std::system_error(error, std::generic_category(), "lowtide: " + tried + " in " + folder),
        folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace lowtide::tier
