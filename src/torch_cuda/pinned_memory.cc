#include "pinned_memory.h"

#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace lowtide::torch_runtime {
namespace {

constexpr std::int64_t kPage = 4096;

void let_wait(const c10::cuda::CUDAStream& waiting, const c10::cuda::CUDAStream& first) {
  if (waiting == first) return;
  c10::cuda::CUDAEvent done;
  done.record(first);
  done.block(waiting);
}

}  // namespace

std::byte* PinnedMemory::take(std::int64_t bytes, const c10::cuda::CUDAStream& stream) {
  const c10::cuda::CUDAGuard here(device_);
  const std::int64_t size = (std::max<std::int64_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  const std::lock_guard lock(mutex_);
  std::byte* block = nullptr;
  if (const auto found = kept_.find(size); found != kept_.end()) {
    const auto [address, before] = found->second;
    let_wait(stream, before);
    kept_.erase(found);
    block = address;
  } else {
    block = pin(size);
  }
  used_.emplace(block, Block{size, stream});
  return block;
}

// Wants the mutex.
std::byte* PinnedMemory::pin(std::int64_t bytes) {
  const auto try_to = [&]() -> std::byte* {
    void* address = nullptr;
    if (cudaHostAlloc(&address, static_cast<std::size_t>(bytes), cudaHostAllocMapped) == cudaSuccess) {
      return static_cast<std::byte*>(address);
    }
    static_cast<void>(cudaGetLastError());  // it is told of here
    return nullptr;
  };
  std::byte* block = try_to();
  if (block == nullptr) {
    unpin_kept();
    block = try_to();
  }
  TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "lowtide: the system does not pin ", bytes,
                   " bytes of the host's memory to swap to");
  return block;
}

void PinnedMemory::give_back(std::byte* block) noexcept {
  try {
    const c10::cuda::CUDAGuard here(device_);
    const std::lock_guard lock(mutex_);
    const auto found = used_.find(block);
    const Block& given = found->second;
    for (const c10::cuda::CUDAStream& other : given.others) let_wait(given.stream, other);
    kept_.emplace(given.bytes, std::pair(block, given.stream));
    used_.erase(found);
    if (used_.empty()) unpin_kept();
  } catch (...) {  // the process ends, and CUDA is gone already: so is the memory soon
  }
}

// Wants the mutex.
void PinnedMemory::unpin_kept() {
  for (const auto& [bytes, block] : std::exchange(kept_, {})) {
    block.second.synchronize();
    C10_CUDA_CHECK_WARN(cudaFreeHost(block.first));
  }
}

PinnedMemory::Blocks::const_iterator PinnedMemory::find(const void* address) const {
  auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
  const auto next = used_.upper_bound(at);
  if (next == used_.begin()) return used_.end();
  const auto found = std::prev(next);
  return at < found->first + found->second.bytes ? found : used_.end();
}

bool PinnedMemory::note_use(const void* address, const c10::cuda::CUDAStream& stream) {
  const std::lock_guard lock(mutex_);
  const auto found = find(address);
  if (found == used_.end()) return false;
  Block& block = used_.at(found->first);
  if (stream != block.stream && std::find(block.others.begin(), block.others.end(), stream) == block.others.end()) {
    block.others.push_back(stream);
  }
  return true;
}

bool PinnedMemory::contains(const void* address) const {
  const std::lock_guard lock(mutex_);
  return find(address) != used_.end();
}

}  // namespace lowtide::torch_runtime
