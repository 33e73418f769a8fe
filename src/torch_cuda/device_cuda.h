// device_cuda.h: the memory of a CUDA device. The arena is a block of PyTorch's caching allocator, so that
// torch.cuda.memory_allocated() and memory_reserved() count it like any tensor. So is each annex.
//
// A stretch belongs to the stream that the last step there ran on, or that was current when its block was allocated. A
// step on another stream waits for that one first, and for every stream that record_stream() has named as long as
// somebody outside held a part of the arena. So does the stream whose pool a block goes back to.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "host_tier.h"
#include "queued_uses.h"
#include "torch/runtime.h"

namespace lowtide::torch_runtime {

class CudaDevice final : public Device {
 public:
  CudaDevice(c10::DeviceIndex index, Runtime& runtime, c10::cuda::CUDACachingAllocator::CUDAAllocator& memory);

  // The device in whose arena this address lies, or null.
  static CudaDevice* with(const void* address);
  static CudaDevice* at(c10::DeviceIndex index);

  c10::Device where() const override { return c10::Device(c10::kCUDA, index_); }
  c10::DispatchKey key() const override { return c10::DispatchKey::CUDA; }
  std::int64_t alignment() const override { return 512; }

  std::byte* base() const override;
  bool contains(const void* pointer) const override;
  std::int64_t whole_pages(std::int64_t bytes) const override { return (bytes + 511) / 512 * 512; }
  bool moves() const override { return true; }
  void resize(std::int64_t bytes) override;
  void empty_above(std::int64_t) override {}
  void empty_cache() override { memory_.emptyCache(); }

  std::byte* add_annex(std::int64_t bytes) override;
  void remove_annex(std::byte* begin) override;

  void before_step(const std::byte* begin, std::int64_t bytes) override;
  void after_step(const std::byte* begin, std::int64_t bytes) override;
  void leave_to_caller() override;

  std::shared_ptr<SlowTier> host_tier() override { return host(); }

  // The same; made when it is first asked for.
  std::shared_ptr<HostTier> host();

  // What somebody holds of the arena is used there: steps wait for that.
  void wait_for_stream(c10::cuda::CUDAStream stream);

  // A stream uses what lies at an address. Whether that is in the tier.
  bool note_use_of_tier(const void* address, const c10::cuda::CUDAStream& stream);

  // Plants a fault, for tests.
  void leave_out_waits(bool leave_out) { waits_ = !leave_out; }

 private:
  struct Block {
    std::byte* begin = nullptr;
    std::int64_t bytes = 0;
    std::optional<c10::cuda::CUDAStream> stream = {};  // whose pool it belongs to
    bool contains(const void* pointer) const {
      const auto* address = static_cast<const std::byte*>(pointer);
      return address >= begin && address < begin + bytes;
    }
  };
  Block allocate(std::int64_t bytes);
  void leave(const Block& block);
  void free_unheld();
  void note_others();
  bool is_held() const;

  const c10::DeviceIndex index_;
  Runtime& runtime_;
  c10::cuda::CUDACachingAllocator::CUDAAllocator& memory_;
  mutable std::mutex mutex_;
  Block block_;
  std::vector<Block> annexes_;
  std::vector<Block> left_;  // moved on from, and somebody held a part of it
  QueuedUses uses_;
  bool waits_ = true;
  std::vector<c10::cuda::CUDAStream> others_;
  std::shared_ptr<HostTier> host_;
};

}  // namespace lowtide::torch_runtime
