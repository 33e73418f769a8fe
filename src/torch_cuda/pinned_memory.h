// pinned_memory.h: memory of the host that a CUDA device can read and write at the same address.
//
// It takes the system long to pin memory, so blocks that are given back are kept for the next request of their size.
// As with PyTorch's memory on the device, whoever gets a block uses it on one stream, and its next owner comes after
// that:
//
//   stream A   take -> use ------ give back -> take -> use           the order of A is enough
//   stream B                  use |                                  note_use(B): A waits for B when it is given back
//   stream C                                          take -> use    C waits for A
//
// The host itself looks there only after it has waited for a stream. When no block is in use, all go back to the
// system.
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace lowtide::torch_runtime {

class PinnedMemory {
 public:
  explicit PinnedMemory(c10::DeviceIndex device) : device_(device) {}

  // To be used on this stream. Throws c10::Error if there is not that much.
  std::byte* take(std::int64_t bytes, const c10::cuda::CUDAStream& stream);
  void give_back(std::byte* block) noexcept;

  // What is queued there now uses the block at this address. Whether there is one.
  bool note_use(const void* address, const c10::cuda::CUDAStream& stream);

  bool contains(const void* address) const;

 private:
  struct Block {
    std::int64_t bytes;
    c10::cuda::CUDAStream stream;
    std::vector<c10::cuda::CUDAStream> others = {};  // that have used it too
  };
  using Blocks = std::map<std::byte*, Block>;

  Blocks::const_iterator find(const void* address) const;
  std::byte* pin(std::int64_t bytes);
  void unpin_kept();

  const c10::DeviceIndex device_;
  mutable std::mutex mutex_;
  Blocks used_;
  std::multimap<std::int64_t, std::pair<std::byte*, c10::cuda::CUDAStream>> kept_;  // by bytes
};

}  // namespace lowtide::torch_runtime
