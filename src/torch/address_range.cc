#include "address_range.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lowtide::torch_runtime {
namespace {

constexpr std::size_t kReserve = std::size_t{1} << 40;  // addresses only; a smaller stretch where the system refuses
constexpr std::size_t kLeast = std::size_t{1} << 30;

}  // namespace

AddressRange::AddressRange() {
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

std::int64_t AddressRange::whole_pages(std::int64_t bytes) {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

void AddressRange::open(std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  TORCH_CHECK(end <= reserved_bytes(), "lowtide: an arena of ", end, " bytes was asked for and ", reserved_,
              " bytes of addresses are reserved");
  const auto bytes = static_cast<std::size_t>(end - begin);
  TORCH_CHECK(mprotect(base_ + begin, bytes, PROT_READ | PROT_WRITE) == 0, "lowtide: the system refuses an arena of ",
              end, " bytes");
  madvise(base_ + begin, bytes, MADV_HUGEPAGE);  // a wish: fewer page faults and table walks
}

void AddressRange::close(std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  const auto bytes = static_cast<std::size_t>(end - begin);
  madvise(base_ + begin, bytes, MADV_DONTNEED);
  mprotect(base_ + begin, bytes, PROT_NONE);
}

}  // namespace lowtide::torch_runtime
