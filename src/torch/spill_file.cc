#include "spill_file.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "address_range.h"

namespace lowtide::torch_runtime {
namespace {

std::size_t pages_of(std::size_t bytes) {
  return static_cast<std::size_t>(AddressRange::whole_pages(static_cast<std::int64_t>(bytes)));
}

}  // namespace

// Open as long as the spill file or one of its blocks is there.
class SpillFile::Descriptor {
 public:
  explicit Descriptor(const std::string& folder) : file_(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
    TORCH_CHECK(file_ >= 0, "lowtide: no file to spill to can be made in ", folder, ": ", std::strerror(errno));
  }
  ~Descriptor() { close(file_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int file() const { return file_; }

 private:
  int file_;
};

// All blocks of the process, so that a forked one can make them its own.
class SpillFile::Blocks {
 public:
  static Blocks& all() {
    static auto* blocks = new Blocks;
    return *blocks;
  }

  void add(void* block, std::shared_ptr<const Descriptor> file, std::int64_t begin, std::size_t pages) {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(block, Block{std::move(file), begin, pages});
  }

  void remove(void* block) {
    std::shared_ptr<const Descriptor> file;  // closed without the lock
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(block);
    if (found == blocks_.end()) return;
    file = std::move(found->second.file);
    blocks_.erase(found);
  }

 private:
  struct Block {
    std::shared_ptr<const Descriptor> file;
    std::int64_t begin;
    std::size_t pages;
  };

  Blocks() {
    pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); },
                   [] {
                     all().make_private();
                     all().mutex_.unlock();
                   });
  }

  // What the child writes from now on is its own, and what it frees leaves the file as it is.
  void make_private() {
    for (const auto& [address, block] : blocks_) {
      mmap(address, block.pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, block.file->file(), block.begin);
    }
  }

  std::mutex mutex_;
  std::map<void*, Block> blocks_;
};

SpillFile::SpillFile(const std::string& folder) : file_(std::make_shared<const Descriptor>(folder)) {
  Blocks::all();
}

SpillFile::~SpillFile() = default;

void* SpillFile::allocate(std::size_t bytes) {
  const std::size_t pages = pages_of(bytes);
  const std::int64_t begin = end_;
  const auto size = static_cast<std::int64_t>(pages);
  TORCH_CHECK(posix_fallocate(file_->file(), begin, size) == 0, "lowtide: the file to spill to has no room for ", bytes,
              " bytes more");
  void* block = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED, file_->file(), begin);
  TORCH_CHECK(block != MAP_FAILED, "lowtide: ", bytes,
              " bytes of the file to spill to cannot be mapped: ", std::strerror(errno));
  end_ += size;
  Blocks::all().add(block, file_, begin, pages);
  return block;
}

void SpillFile::release(void* block, std::size_t bytes) {
  Blocks::all().remove(block);
  madvise(block, pages_of(bytes), MADV_REMOVE);  // frees the disk as well; not in a forked process, whose are private
  munmap(block, pages_of(bytes));
}

}  // namespace lowtide::torch_runtime
