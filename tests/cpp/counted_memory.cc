#include "counted_memory.h"

#include <malloc.h>

#include <atomic>

#include "sanitized.h"

namespace {

std::atomic<std::size_t> live = 0;
std::atomic<std::size_t> most = 0;

}  // namespace

namespace lowtide {

std::size_t live_bytes() {
  return live;
}
std::size_t most_bytes() {
  return most;
}
void forget_most_bytes() {
  most = live.load();
}

}  // namespace lowtide

#if !LOWTIDE_SANITIZED
namespace {

void note(void* memory) {
  if (memory == nullptr) return;
  const std::size_t now = live += malloc_usable_size(memory);
  std::size_t before = most;
  while (now > before && !most.compare_exchange_weak(before, now)) {
  }
}

void forget(void* memory) {
  if (memory != nullptr) live -= malloc_usable_size(memory);
}

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* memory);

void* malloc(std::size_t size) {
  void* const memory = __libc_malloc(size);
  note(memory);
  return memory;
}
void* calloc(std::size_t count, std::size_t size) {
  void* const memory = __libc_calloc(count, size);
  note(memory);
  return memory;
}
void* realloc(void* old, std::size_t size) {
  forget(old);
  void* const memory = __libc_realloc(old, size);
  note(memory != nullptr || size == 0 ? memory : old);
  return memory;
}
void* memalign(std::size_t alignment, std::size_t size) {
  void* const memory = __libc_memalign(alignment, size);
  note(memory);
  return memory;
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return memalign(alignment, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  *memory = memalign(alignment, size);
  return *memory == nullptr ? 12 : 0;
}
void free(void* memory) {
  forget(memory);
  __libc_free(memory);
}
}
#endif
