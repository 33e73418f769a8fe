#include "tier/file_mappings.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tier/file_error.h"

namespace lowtide::tier {
namespace {

// Of the process, so that a forked one can make them its own.
class Mappings {
 public:
  static Mappings& all() {
    static auto* mappings = new Mappings;  // never destroyed: tensors may outlive every static object
    return *mappings;
  }

  void add(std::byte* address, std::shared_ptr<NamelessFile> file, std::int64_t offset, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    mappings_.emplace(address, Mapping{std::move(file), offset, bytes});
  }

  void remove(std::byte* address) {
    std::shared_ptr<NamelessFile> file;  // may end without the lock
    const std::lock_guard lock(mutex_);
    const auto found = mappings_.find(address);
    if (found == mappings_.end()) return;
    file = std::move(found->second.file);
    mappings_.erase(found);
  }

  std::optional<FilePlace> find(const std::byte* address) {
    const std::lock_guard lock(mutex_);
    auto after = mappings_.upper_bound(const_cast<std::byte*>(address));
    if (after == mappings_.begin()) return std::nullopt;
    const auto& [begin, mapping] = *--after;
    if (address - begin >= mapping.bytes || !mapping.shared) return std::nullopt;
    return FilePlace{mapping.file, mapping.offset + (address - begin)};
  }

  bool any_shared() {
    const std::lock_guard lock(mutex_);
    return std::any_of(mappings_.begin(), mappings_.end(), [](const auto& each) { return each.second.shared; });
  }

 private:
  struct Mapping {
    std::shared_ptr<NamelessFile> file;
    std::int64_t offset;
    std::int64_t bytes;
    bool shared = true;
  };

  Mappings() {
    pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); },
                   [] {
                     all().make_private();
                     all().mutex_.unlock();
                   });
  }

  // In a child: what it writes from now on is its own, and what it frees leaves the file as it is.
  void make_private() {
    for (auto& [address, mapping] : mappings_) {
      if (!std::exchange(mapping.shared, false)) continue;
      mmap(address, static_cast<std::size_t>(mapping.bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
           mapping.file->number(), mapping.offset);
    }
  }

  std::mutex mutex_;
  std::map<std::byte*, Mapping> mappings_;
};

}  // namespace

std::int64_t page_bytes() {
  static const std::int64_t bytes = std::max<std::int64_t>(sysconf(_SC_PAGESIZE), 4096);
  return bytes;
}

std::int64_t whole_pages(std::int64_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

std::byte* map_shared(std::shared_ptr<NamelessFile> file, std::int64_t offset, std::int64_t bytes) {
  Mappings& mappings = Mappings::all();
  void* address =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file->number(), offset);
  if (address == MAP_FAILED) {
    throw FileError(errno, "cannot map " + std::to_string(bytes) + " bytes of a file", file->folder());
  }
  auto* begin = static_cast<std::byte*>(address);
  mappings.add(begin, std::move(file), offset, bytes);
  return begin;
}

void unmap_shared(void* mapping, std::int64_t bytes) {
  Mappings::all().remove(static_cast<std::byte*>(mapping));  // first: after munmap another may be there
  munmap(mapping, static_cast<std::size_t>(bytes));
}

std::optional<FilePlace> find_mapped(const void* address) {
  return Mappings::all().find(static_cast<const std::byte*>(address));
}

bool any_mapped() {
  return Mappings::all().any_shared();
}

bool has_pages(const void* address, std::int64_t bytes) {
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
  const int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (file < 0) return true;
  const Descriptor pagemap(file);
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const auto begin = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address));
  std::int64_t next = begin / page;
  const std::int64_t end = (begin + bytes + page - 1) / page;
  std::vector<std::uint64_t> entries(4096);
  while (next < end) {
    const std::size_t wanted = std::min(entries.size(), static_cast<std::size_t>(end - next)) * sizeof(std::uint64_t);
    const ssize_t read = pread(file, entries.data(), wanted, next * static_cast<std::int64_t>(sizeof(std::uint64_t)));
    if (read <= 0) return true;
    const ssize_t count = read / static_cast<ssize_t>(sizeof(std::uint64_t));
    if (std::any_of(entries.begin(), entries.begin() + count,
                    [](std::uint64_t entry) { return (entry & kPresent) != 0; })) {
      return true;
    }
    next += count;
  }
  return false;
}

void give_pages_back(void* address, std::int64_t bytes) {
  const std::optional<FilePlace> place = find_mapped(address);
  if (!place) return;
  const auto size = static_cast<std::size_t>(bytes);
  msync(address, size, MS_SYNC);  // only clean pages leave the page cache
  madvise(address, size, MADV_DONTNEED);
  posix_fadvise(place->file->number(), place->offset, bytes, POSIX_FADV_DONTNEED);
}

}  // namespace lowtide::tier
