#include "address_range.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace lowtide::torch_runtime {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 40;

// Where to begin, and how far apart ranges then lie. The second is for systems with 39 bits of addresses.
struct Region {
  std::uintptr_t first;
  std::size_t apart;
};
constexpr std::array<Region, 2> kRegions = {{{std::uintptr_t{1} << 45, kMost}, {std::uintptr_t{1} << 37, kMost >> 5}}};
constexpr std::size_t kTries = 16;

// The pages at `wanted` and nowhere else; null if they are not free.
std::byte* reserve_at(std::byte* wanted, std::size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  void* address = mmap(wanted, bytes, PROT_NONE, kFlags, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  if (address == wanted) return wanted;
  munmap(address, bytes);  // kernels before 4.17 take the address for a wish
  return nullptr;
}

std::size_t page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

AddressRange::AddressRange() : reserved_(page_bytes()) {
  for (const Region& region : kRegions) {
    for (std::size_t at = 0; at < kTries; ++at) {
      auto* wanted = reinterpret_cast<std::byte*>(region.first + at * region.apart);  // NOLINT: an address to ask for
      base_ = reserve_at(wanted, reserved_);
      if (base_ != nullptr) return;
    }
  }
  void* address = mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(address != MAP_FAILED, "lowtide: the system has no addresses for an arena");
  base_ = static_cast<std::byte*>(address);
}

std::int64_t AddressRange::most_bytes() {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return static_cast<std::int64_t>(limited ? std::min<std::size_t>(kMost, limit.rlim_cur / 4) : kMost);
}

std::int64_t AddressRange::whole_pages(std::int64_t bytes) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

void AddressRange::reserve(std::int64_t end) {
  const std::size_t reserved = reserved_;
  const auto wanted = static_cast<std::size_t>(end);
  if (wanted <= reserved) return;
  TORCH_CHECK(wanted <= kMost && reserve_at(base_ + reserved, wanted - reserved) != nullptr,
              "lowtide: the system has no addresses for an arena of ", end, " bytes");
  reserved_ = wanted;
}

void AddressRange::let_go_from(std::int64_t begin) {
  const std::size_t left = std::max(static_cast<std::size_t>(begin), page_bytes());
  if (left >= reserved_) return;
  const std::size_t bytes = reserved_ - left;
  reserved_ = left;
  munmap(base_ + left, bytes);
}

void AddressRange::open(std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  const auto reserved = static_cast<std::int64_t>(reserved_.load());
  reserve(end);
  const auto bytes = static_cast<std::size_t>(end - begin);
  if (mprotect(base_ + begin, bytes, PROT_READ | PROT_WRITE) != 0) {
    let_go_from(reserved);
    TORCH_CHECK(false, "lowtide: the system refuses an arena of ", end, " bytes");
  }
  madvise(base_ + begin, bytes, MADV_HUGEPAGE);  // a wish: fewer page faults and table walks
}

void AddressRange::empty(std::int64_t begin, std::int64_t end) {
  if (begin < end) madvise(base_ + begin, static_cast<std::size_t>(end - begin), MADV_DONTNEED);
}

void AddressRange::close(std::int64_t begin, std::int64_t end) {
  const auto reserved = static_cast<std::int64_t>(reserved_.load());
  end = std::min(end, reserved);  // what lies behind that is somebody else's
  if (begin >= end) return;
  const auto bytes = static_cast<std::size_t>(end - begin);
  madvise(base_ + begin, bytes, MADV_DONTNEED);
  mprotect(base_ + begin, bytes, PROT_NONE);
  if (end == reserved) let_go_from(begin);
}

}  // namespace lowtide::torch_runtime
