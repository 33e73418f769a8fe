#include "spill_file.h"

#include <sys/mman.h>

#include "tier/file_mappings.h"

namespace lowtide::torch_runtime {
namespace {

std::int64_t pages_of(std::size_t bytes) {
  return tier::whole_pages(static_cast<std::int64_t>(bytes));
}

}  // namespace

void* SpillFile::allocate(std::size_t bytes) {
  const std::int64_t size = pages_of(bytes);
  file_->allocate(end_, size);
  void* block = tier::map_shared(file_, end_, size);
  end_ += size;
  return block;
}

void SpillFile::release(void* block, std::size_t bytes) {
  const std::int64_t size = pages_of(bytes);
  // Frees the disk as well; not in a forked process, whose blocks are private.
  madvise(block, static_cast<std::size_t>(size), MADV_REMOVE);
  tier::unmap_shared(block, size);
}

}  // namespace lowtide::torch_runtime
