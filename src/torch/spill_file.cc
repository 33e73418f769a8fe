#include "spill_file.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "address_range.h"

namespace lowtide::torch_runtime {
namespace {

std::size_t pages_of(std::size_t bytes) {
  return static_cast<std::size_t>(AddressRange::whole_pages(static_cast<std::int64_t>(bytes)));
}

}  // namespace

SpillFile::SpillFile(const std::string& folder) : file_(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
  TORCH_CHECK(file_ >= 0, "lowtide: no file to spill to can be made in ", folder, ": ", std::strerror(errno));
}

SpillFile::~SpillFile() {
  close(file_);
}

void* SpillFile::allocate(std::size_t bytes) {
  const std::size_t pages = pages_of(bytes);
  const std::int64_t begin = end_;
  const auto size = static_cast<std::int64_t>(pages);
  TORCH_CHECK(posix_fallocate(file_, begin, size) == 0, "lowtide: the file to spill to has no room for ", bytes,
              " bytes more");
  void* block = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED, file_, begin);
  TORCH_CHECK(block != MAP_FAILED, "lowtide: ", bytes,
              " bytes of the file to spill to cannot be mapped: ", std::strerror(errno));
  end_ += size;
  return block;
}

void SpillFile::release(void* block, std::size_t bytes) {
  madvise(block, pages_of(bytes), MADV_REMOVE);  // frees the disk as well
  munmap(block, pages_of(bytes));
}

}  // namespace lowtide::torch_runtime
