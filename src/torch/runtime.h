// runtime.h: what the extension of another device has of this one. It is built where that device's headers are, and
// finds the runtime as an object, since extensions share no symbols.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>

#include "device.h"

namespace lowtide::torch_runtime {

// What becomes of a request: it lies at its planned place, or it is an ordinary one. If that is `watched`, the runtime
// is told of it when it is there and when it is freed; `step` is then the step that had not planned it, or 0.
struct Served {
  void* address = nullptr;
  c10::DeleterFnPtr deleter = nullptr;  // of the address
  bool watched = false;
  bool followed = false;  // it is written down, as a request of an eager iteration
  std::uint64_t step = 0;
};

// What the extension keeps of a watched block until it is freed.
struct WatchedBlock {
  std::int64_t bytes;
  std::uint64_t step;    // as above
  std::uint64_t serial;  // as the runtime gave it
};

class Runtime {
 public:
  static constexpr const char* kCapsule = "lowtide._torch.Runtime";

  virtual ~Runtime() = default;
  virtual void add_device(Device* device) = 0;

  // By the thread that makes the request, or frees the block.
  virtual Served serve(c10::Device where, std::int64_t bytes) = 0;
  virtual std::uint64_t note_ordinary(c10::Device where, const void* address, std::int64_t bytes,
                                      const Served& served) = 0;
  virtual void note_freed(c10::Device where, const void* address, const WatchedBlock& block) = 0;

  // A stream uses what lies at an address. Whether the runtime sees to it that this comes first.
  virtual bool note_use(const void* address, const c10::Stream& stream) = 0;

  // So many pools more are open, or less: what is allocated to a pool is not planned.
  virtual void count_pools(int change) = 0;

  // Whether somebody outside of a step holds any of these bytes of an arena.
  virtual bool is_held(const std::byte* begin, std::int64_t bytes) const = 0;
};

Runtime& runtime();

}  // namespace lowtide::torch_runtime
