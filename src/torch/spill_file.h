// spill_file.h: blocks of memory that are pages of a file, which the system writes out when memory runs short.
//
// For iterations that are only looked at: they may need more memory than there is, and may be slow. A process that is
// forked has copies of the blocks (see tier/file_mappings.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tier/nameless_file.h"

namespace lowtide::torch_runtime {

class SpillFile {
 public:
  // A file without a name in `folder`. Throws tier::FileError if it cannot be made there.
  explicit SpillFile(const std::string& folder) : file_(std::make_shared<tier::NamelessFile>(folder)) {}

  static constexpr std::size_t kLeast = 64 << 10;  // smaller blocks are not worth a page of a file

  // Throws tier::FileError if the disk or the addresses are used up.
  void* allocate(std::size_t bytes);

  // A block stays where it is when the file is gone.
  static void release(void* block, std::size_t bytes);

 private:
  std::shared_ptr<tier::NamelessFile> file_;
  std::int64_t end_ = 0;
};

}  // namespace lowtide::torch_runtime
