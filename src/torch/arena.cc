#include "arena.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace lowtide::torch_runtime {
namespace {

constexpr std::size_t kReserve = std::size_t{1} << 40;  // addresses only; a smaller stretch where the system refuses
constexpr std::size_t kLeast = std::size_t{1} << 30;

std::int64_t whole_pages(std::int64_t bytes) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

}  // namespace

Arena& Arena::process() {
  static Arena* arena = new Arena;  // never destroyed: tensors may outlive every static object
  return *arena;
}

Arena::Arena() {
  for (std::size_t bytes = kReserve; bytes >= kLeast; bytes /= 2) {
    void* address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address != MAP_FAILED) {
      base_ = static_cast<std::byte*>(address);
      reserved_ = bytes;
      return;
    }
  }
  TORCH_CHECK(false, "lowtide: no ", kLeast, " bytes of addresses can be reserved for the arena");
}

void Arena::add_need(std::int64_t bytes) {
  const std::lock_guard lock(needs_mutex_);
  const std::int64_t wanted = whole_pages(bytes);
  if (wanted > usable_) {
    TORCH_CHECK(static_cast<std::size_t>(wanted) <= reserved_, "lowtide: an arena of ", bytes,
                " bytes was asked for and ", reserved_, " bytes of addresses are reserved");
    TORCH_CHECK(mprotect(base_, static_cast<std::size_t>(wanted), PROT_READ | PROT_WRITE) == 0,
                "lowtide: the system refuses an arena of ", bytes, " bytes");
    madvise(base_, static_cast<std::size_t>(wanted), MADV_HUGEPAGE);  // a wish: fewer page faults and table walks
    usable_ = wanted;
  }
  needs_.insert(wanted);
}

void Arena::remove_need(std::int64_t bytes, std::int64_t keep) {
  // A step of another program may be running in what stays; it cannot be running in what goes.
  const std::lock_guard lock(needs_mutex_);
  needs_.erase(needs_.find(whole_pages(bytes)));
  const std::int64_t left = std::max(needs_.empty() ? 0 : *needs_.rbegin(), whole_pages(keep));
  if (left < usable_) {
    madvise(base_ + left, static_cast<std::size_t>(usable_ - left), MADV_DONTNEED);
    mprotect(base_ + left, static_cast<std::size_t>(usable_ - left), PROT_NONE);
    usable_ = left;
  }
}

std::int64_t Arena::usable_bytes() {
  const std::lock_guard lock(needs_mutex_);
  return usable_;
}

}  // namespace lowtide::torch_runtime
