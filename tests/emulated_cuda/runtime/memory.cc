#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <vector>

#include "figures.h"

namespace emulated_cuda {
namespace {

constexpr std::size_t kAddresses = std::size_t{4} << 40;
constexpr std::size_t kHostPage = 4096;

[[noreturn]] void stop(const char* what) {
  std::perror(what);
  std::abort();
}

struct Memory {
  char* base = nullptr;
  std::map<char*, std::size_t> reserved, backed, pinned;
  std::vector<std::size_t> taken = std::vector<std::size_t>(static_cast<std::size_t>(figures().devices), 0);

  Memory() {
    void* const at =
        mmap(nullptr, 2 * kAddresses + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) stop("emulated CUDA: address space");
    base = reinterpret_cast<char*>(round_up(reinterpret_cast<std::size_t>(at), kPage));
  }
};
Memory& memory() {
  static auto* const made = new Memory;
  return *made;
}

std::recursive_mutex& mutex() {
  static auto* const made = new std::recursive_mutex;
  return *made;
}

// The last extent that begins at or before `address`.
Extent before(const std::map<char*, std::size_t>& extents, const void* address) {
  auto next = extents.upper_bound(static_cast<char*>(const_cast<void*>(address)));
  if (next == extents.begin()) return {};
  --next;
  return {next->first, next->second};
}

}  // namespace

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

Lock::Lock() : held_(mutex()) {}

bool is_device(const void* address) {
  const char* const base = memory().base;
  return address >= base && address < base + kAddresses;
}
std::ptrdiff_t shadow_distance() {
  return static_cast<std::ptrdiff_t>(kAddresses);
}

bool is_allocated(const void* address, std::size_t bytes) {
  const char* const end = static_cast<const char*>(address) + bytes;
  for (const char* at = static_cast<const char*>(address); at < end;) {
    const Extent found = extent_of(at);
    if (found.bytes == 0) return false;
    at = found.begin + found.bytes;
  }
  return true;
}

bool take(int device, std::size_t bytes) {
  if (bytes > free_bytes(device)) return false;
  memory().taken[static_cast<std::size_t>(device)] += bytes;
  return true;
}
void give_back(int device, std::size_t bytes) {
  memory().taken[static_cast<std::size_t>(device)] -= bytes;
}
std::size_t free_bytes(int device) {
  return figures().memory - memory().taken[static_cast<std::size_t>(device)];
}

char* reserve(std::size_t bytes) {
  Memory& m = memory();
  char* at = m.base;
  for (const auto& [begin, length] : m.reserved) {
    if (at + bytes <= begin) break;
    at = begin + length;
  }
  if (at + bytes > m.base + kAddresses) return nullptr;
  m.reserved[at] = bytes;
  return at;
}
bool unreserve(char* address) {
  return memory().reserved.erase(address) == 1;
}

void back(char* address, std::size_t bytes) {
  if (mprotect(bytes_at(address), bytes, PROT_READ | PROT_WRITE) != 0) stop("emulated CUDA: shadow memory");
  memory().backed[address] = bytes;
}
void unback(char* address, std::size_t bytes) {
  if (mmap(bytes_at(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    stop("emulated CUDA: shadow memory");
  }
  memory().backed.erase(address);
}
void poison(char* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::size_t>(bytes_at(address)), end = begin + bytes;
  const std::size_t first = begin / kHostPage * kHostPage, pages = (end - first + kHostPage - 1) / kHostPage;
  std::vector<unsigned char> touched(pages);
  if (mincore(reinterpret_cast<void*>(first), pages * kHostPage, touched.data()) != 0) stop("emulated CUDA: poison");
  for (std::size_t i = 0; i < pages; ++i) {
    if ((touched[i] & 1) == 0) continue;
    const std::size_t from = std::max(begin, first + i * kHostPage), to = std::min(end, first + (i + 1) * kHostPage);
    std::memset(reinterpret_cast<void*>(from), 0xFF, to - from);
  }
}

Extent extent_of(const void* address) {
  const Extent found = before(memory().backed, address);
  return address < found.begin + found.bytes ? found : Extent{};
}

void set_pinned(void* address, std::size_t bytes) {
  memory().pinned[static_cast<char*>(address)] = bytes;
}
std::size_t unset_pinned(void* address) {
  const auto found = memory().pinned.find(static_cast<char*>(address));
  if (found == memory().pinned.end()) return 0;
  const std::size_t bytes = found->second;
  memory().pinned.erase(found);
  return bytes;
}
bool is_pinned(const void* address) {
  const Extent found = before(memory().pinned, address);
  return address < found.begin + found.bytes;
}

}  // namespace emulated_cuda
