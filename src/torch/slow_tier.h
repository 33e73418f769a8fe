// slow_tier.h: a memory behind a link, as programs use it: blocks of the arena are stored there and loaded back while
// other calls run.
//
//   CPU     a file; its homes are mapped, so that tensors in them are read as any other      file_tier.cc
//   CUDA    pinned memory of the host, which the device reads and writes too                 Device::host_tier()
//
// A slot is a range of it, known by its offset or address. A home is a slot that is the memory of a tensor of the
// caller's: the tensor's own address leads there, so that whoever looks at it between steps sees its content.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace lowtide::torch_runtime {

class SlowTier {
 public:
  using Ticket = std::uint64_t;

  virtual ~SlowTier() = default;

  // Slots for a program. Throws if there is not that much.
  virtual std::int64_t reserve(std::int64_t bytes) = 0;
  virtual void release(std::int64_t slot, std::int64_t bytes) = 0;

  // Memory for a tensor, which is a slot of this tier until it is freed.
  virtual c10::DataPtr make_home(std::int64_t bytes) = 0;

  // The slot that is this memory, if it is one.
  virtual std::optional<std::int64_t> slot_of(const void* address) const = 0;

  // Begins when all that was called before is done. A store may go on to the end of the tier's page; a load does not.
  virtual Ticket store(const void* from, std::int64_t slot, std::int64_t bytes) = 0;
  virtual Ticket load(std::int64_t slot, void* to, std::int64_t bytes) = 0;

  // What is called afterwards finds it over. Throws if it failed; then it may still be under way.
  virtual void wait(Ticket ticket) = 0;

  // Whether nothing is under way, not even what a failed wait has left.
  virtual bool is_quiet() const = 0;

  // At once, between memory of the device and memory that is no slot.
  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
};

}  // namespace lowtide::torch_runtime
