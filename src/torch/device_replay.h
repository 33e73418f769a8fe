// device_replay.h: iterations of eager code on a device other than the CPU, served from one block of its own allocator.
//
//   host     a is served at 0   kernels of a are queued   a is released   b is served at 0   kernels of b are queued
//   stream                      | a | a |                                                    | b |
//
// The arena belongs to one stream: the one that is current when the replay starts. Kernels may run long after their
// tensors were released, and yet a place can be served again at once, since whoever gets it queues behind them on the
// same stream. So requests on other streams are ordinary ones. Where record_stream() has named another stream, the
// arena's own waits for what was queued there up to the release, before the place is served again.
//
// Autograd runs backward passes of such devices on threads of its own. They carry the token that the owner's thread
// has, and their requests are the owner's. Those of other threads are ordinary ones, and are counted.
//
// What an iteration leaves alive keeps its memory. The arena does not move away from it, as memory of a device is
// scarce: it is resized when that is gone. For an iteration without a script it goes back to PyTorch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/SafePyObject.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "device.h"
#include "eager_iterations.h"

namespace lowtide::torch_runtime {

class DeviceReplay final : public EagerIterations {
 public:
  static DeviceReplay& process();
  static bool is_running() { return running_.load(std::memory_order_acquire) != nullptr; }
  static DeviceReplay* if_running_on(c10::Device where) {
    DeviceReplay* replay = running_.load(std::memory_order_acquire);
    return replay != nullptr && replay->where_ == where ? replay : nullptr;
  }

  // The calling thread is now the owner, and its current stream the arena's. Throws c10::Error if there is one.
  void start(c10::Device where);
  void stop() override;

  void set_paused(bool paused) override;
  void set_arena(std::int64_t bytes) override;
  void begin(Scripts variants, replay::Suits suits, bool record) override;
  Outcome finish() override;
  Recording take_recording() override;
  std::size_t blocks_left_behind() override;

  // Requests of the owner on other streams, or for a pool of their own.
  std::int64_t requests_on_other_streams() const { return other_streams_.load(std::memory_order_relaxed); }

  // Plants a fault, for tests: what other streams do is not waited for.
  void leave_out_waits(bool leave_out) { waits_ = !leave_out; }

  // -- for the allocator ------------------------------------------------------------------------------------------

  // Whether the request that the calling thread makes is one of the iteration.
  bool follows_request();

  // The place of such a request, or null if it is an ordinary one, which is noted when it is there, if `records`.
  struct Answer {
    std::byte* address = nullptr;
    std::int64_t highest_end = 0;
    bool records = false;
  };
  Answer serve(std::int64_t bytes);
  void note_ordinary(const void* address, std::int64_t bytes);
  void note_freed(const void* address);

  // Of what was served, by any thread.
  void release(std::byte* address);

  // A stream uses what lies there. False if nothing there was served by a replay.
  bool note_use(const void* address, const c10::Stream& stream);

  // A pool of PyTorch's own is opened or closed, for the capture of a graph as a rule: its requests are not ours.
  static void count_pools(int change) { open_pools_.fetch_add(change, std::memory_order_relaxed); }

 private:
  struct Use {
    std::byte* begin;
    std::int64_t bytes;
    c10::Event done;
  };
  struct LeftBehind {
    std::byte* address;
    std::int64_t bytes;
    std::uint64_t serial;
  };
  struct Block {
    at::Tensor memory;
    c10::Stream stream;
    std::vector<LeftBehind> held = {};  // if the replay is over
    std::byte* base() const { return static_cast<std::byte*>(memory.data_ptr()); }
    bool contains(const void* address) const {
      const auto* at = static_cast<const std::byte*>(address);
      return at >= base() && at < base() + memory.nbytes();
    }
  };

  DeviceReplay();
  bool is_owners_thread() const;

  // These want the mutex.
  void resize(std::int64_t bytes);
  void allocate(std::int64_t bytes);
  void free_arena();
  void leave_behind();
  std::optional<Block> release_left_behind(std::byte* address);
  std::optional<Block> release_now(std::byte* address);
  void release_deferred();
  void note_end_of_uses(std::byte* address, std::int64_t bytes);
  void wait_for_uses(const c10::Stream& stream, const std::byte* begin, std::int64_t bytes);

  static std::atomic<DeviceReplay*> running_;
  static std::atomic<int> open_pools_;

  c10::Device where_ = c10::Device(c10::kCPU);
  Device* device_ = nullptr;
  std::optional<c10::Stream> stream_;
  std::shared_ptr<c10::SafePyObject> token_;
  std::atomic<std::int64_t> other_streams_{0};
  bool waits_ = true;

  std::mutex mutex_;  // of all that follows, and of the iteration
  std::optional<Block> arena_;
  std::int64_t usable_ = 0;                                          // its bytes
  std::int64_t wanted_ = 0;                                          // for scripts
  std::unordered_map<const void*, std::vector<c10::Stream>> named_;  // by record_stream(), for blocks that are alive
  std::vector<std::byte*> deferred_;                                 // released while a graph was captured
  std::vector<Use> uses_;                                            // of places that were released
  std::vector<Block> left_;
};

// The deleter of what a replay has served.
void release_replayed(void* address);

}  // namespace lowtide::torch_runtime
