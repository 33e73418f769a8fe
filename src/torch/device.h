// device.h: a device whose memory is planned, as far as PyTorch has no general form of it: streams, events, generators
// and copies are c10's own, and the same for all devices.
//
//   CPU     addresses that never move, with pages behind a part of them             device_cpu.cc
//   CUDA    a block of PyTorch's caching allocator, and counted as such by it       an extension of its own, see
//   runtime.h
//
// Operators of a device other than the CPU may only be queued when their calls return.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "slow_tier.h"

namespace lowtide::torch_runtime {

class Device {
 public:
  virtual ~Device() = default;

  virtual c10::Device where() const = 0;
  virtual c10::DispatchKey key() const = 0;    // of operators on its tensors
  virtual std::int64_t alignment() const = 0;  // of all its memory: planned places are multiples of it

  // -- the arena ------------------------------------------------------------------------------------------------------

  virtual std::byte* base() const = 0;
  virtual bool contains(const void* pointer) const = 0;
  virtual std::int64_t whole_pages(std::int64_t bytes) const = 0;  // rounded up to what can be had

  // Whether it has another base after it was resized: then its bytes are lost, but for stretches that somebody holds.
  virtual bool moves() const = 0;

  // Where it moves: memory beside it, for whoever runs while it cannot grow. What is removed and held stays until it is
  // let go.
  virtual std::byte* add_annex(std::int64_t) { return nullptr; }
  virtual void remove_annex(std::byte*) {}

  // Gives it so many bytes instead of what it has. Throws c10::Error when there is no memory.
  virtual void resize(std::int64_t bytes) = 0;

  // The memory above `keep` bytes goes back to the system, where that is possible, until somebody writes there.
  virtual void empty_above(std::int64_t keep) = 0;

  // What PyTorch's allocator keeps for later requests goes back to the system.
  virtual void empty_cache() = 0;

  // -- a step on this thread ------------------------------------------------------------------------------------------

  // In a stretch of the arena or an annex. What was queued on other streams and uses that comes first; what operators
  // keep for themselves is there.
  virtual void before_step(const std::byte* begin, std::int64_t bytes) = 0;
  virtual void after_step(const std::byte* begin, std::int64_t bytes) = 0;

  // Tensors of the step stay in its stretch: the caller will use them on this thread's stream.
  virtual void leave_to_caller() {}

  // -- what is behind its memory --------------------------------------------------------------------------------------

  // Memory of the host that blocks of the arena can leave for. Null where the host's memory is the device's own.
  virtual std::shared_ptr<SlowTier> host_tier() { return nullptr; }
};

Device& cpu_device();

// Devices live for ever. Null where there is none of that name.
void add_device(Device* device);
Device* find_device(c10::Device where);

// All that was queued there is done.
void wait_for(c10::Device where);

}  // namespace lowtide::torch_runtime
