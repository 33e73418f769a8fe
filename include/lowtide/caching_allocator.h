// caching_allocator.h: PyTorch's caching allocator for CUDA, simulated: how many bytes requests make it reserve, and
// when a device is full.
//
//   CachingAllocator allocator = *CachingAllocator::make({}, Bytes(24ull << 30));
//   RequestId a = *allocator.allocate(Bytes(3'000'000));   // reserves a segment of 20 MiB
//   allocator.free(a);                                     // which stays reserved
//
// The rules are those of PyTorch 2.13 for its native backend. Requests are rounded up to 512 bytes; those of up to 1
// MiB are small. Small and large ones, and those of each stream, have pools of their own: segments, which blocks tile.
//
//   segment 0, 20 MiB   | a 3 MiB | b 9 MiB       | free 8 MiB     |   <- a request of 5 MiB goes here,
//   segment 1, 30 MiB   | c 30 MiB                             ... |      if no smaller free block holds it
//
// - Small segments have 2 MiB. A large request of less than 10 MiB gets a segment of 20 MiB, another one a segment of
//   its own size, rounded up to 2 MiB.
// - A request takes the smallest free block that holds it, and of these the one at the lowest address. What is left is
//   split off if it has 512 bytes in a small segment, or more than 1 MiB in a large one.
// - A freed block joins its free neighbours. Segments are given back only when the device is full, or by garbage
//   collection; and only those that are free as a whole.
// - With `expandable_segments` there is one range of addresses for each pool, in which pages of 2 or 20 MiB are mapped
//   where they are needed: at the lowest place that has room, beginning in the free block before it. When the device is
//   full, pages that are free as a whole are unmapped. Whatever has 512 bytes is split off.
//
// Not simulated: CUDA graphs and other private pools, memory that another stream still uses when it is freed, and what
// CUDA itself needs; the capacity is what is left beside that.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/status.h"
#include "lowtide/units.h"

namespace lowtide {

// What PYTORCH_ALLOC_CONF sets, as far as it decides about memory; the defaults are PyTorch's.
struct AllocatorSettings {
  bool expandable_segments = false;
  Bytes large_segment_size = Bytes(20 << 20);  // of requests below 10 MiB; pages of expandable segments
  // Free blocks from this size on (oversize) are not split, and serve only requests that are oversize too.
  Bytes max_split_size = Bytes::max();
  Bytes max_non_split_rounding = Bytes(20 << 20);  // an oversize request takes no block that is this much larger
  // By size, 1 MiB to 32 GiB: into how many steps the way to the next power of two is divided, to which requests are
  // rounded up. 0 and 1 for none. Smaller and larger requests have the first and the last.
  std::array<std::uint64_t, 16> roundup_power2_divisions = {};
  double per_process_memory_fraction = 1.0;  // of the capacity; below 1 it is a limit of its own
  // If there is such a limit: where reserved bytes exceed this share of it, free segments of at least average age are
  // given back before new ones are made. 0 for never.
  double garbage_collection_threshold = 0.0;
};

// "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:8]": the form of PYTORCH_ALLOC_CONF. Keys that decide
// about host memory or time only are skipped. What PyTorch refuses is refused (E505), and so are backends other than
// "native".
Result<AllocatorSettings> parse_allocator_settings(std::string_view text);

// An amount, and the most it has been.
struct HighWater {
  Bytes now;
  Bytes peak;
};

struct AllocatorStats {
  HighWater requested;              // as asked for
  HighWater allocated;              // the blocks given for that: torch.cuda.memory_allocated()
  HighWater reserved;               // torch.cuda.memory_reserved()
  std::uint64_t segments = 0;       // there now; address ranges if they are expandable
  std::uint64_t device_allocs = 0;  // calls of cudaMalloc that were served, or of cuMemMap for a range of pages
  std::uint64_t device_frees = 0;
  std::uint64_t retries = 0;  // requests for which the whole cache was given back: num_alloc_retries
  std::uint64_t ooms = 0;

  // The share of what is reserved at most that requests never use.
  double fragmentation() const;
};

// A request that found no room, in the numbers of PyTorch's message.
struct OutOfMemory {
  Bytes requested;  // as asked for
  Bytes tried;      // the segment that could not be made: "tried to allocate"
  Bytes capacity;
  Bytes free;  // of the device, after everything was given back that can be
  Bytes allocated;
  Bytes reserved;

  Bytes reserved_but_unallocated() const { return reserved - allocated; }
};

using RequestId = Id<struct RequestTag>;  // requests count from 0, those for no bytes included

// Segments count from 0 in the order of their making; later ones lie at higher addresses.
struct AllocatedBlock {
  std::uint64_t segment;
  Bytes offset;  // in the segment
  Bytes size;
};

enum class BlockState : std::uint8_t { allocated, free, unmapped };

struct SnapshotBlock : AllocatedBlock {
  BlockState state;
};

// A request takes time in the logarithm of the number of free blocks, but for garbage collection and a full device,
// which look at all of them.
class CachingAllocator {
 public:
  // Refuses settings that PyTorch refuses (E505).
  static Result<CachingAllocator> make(const AllocatorSettings& settings = {}, Bytes capacity = Bytes::max());

  CachingAllocator(CachingAllocator&&) noexcept;
  CachingAllocator& operator=(CachingAllocator&&) noexcept;
  ~CachingAllocator();

  // E404 if the device is full: see out_of_memory(). Later requests may still find room.
  Result<RequestId> allocate(Bytes size, std::uint32_t stream = 0);

  // E506 if it was not given, or was freed already.
  Status free(RequestId request);

  // Gives back what is free as a whole: torch.cuda.empty_cache().
  void empty_cache();

  const AllocatorStats& stats() const;
  const std::optional<OutOfMemory>& out_of_memory() const;  // of the last request that found no room

  // Where a request lies until it is freed; none if it was for no bytes.
  std::optional<AllocatedBlock> block(RequestId request) const;

  // All blocks by address. Those of a segment tile it.
  std::vector<SnapshotBlock> snapshot() const;

 private:
  class State;
  explicit CachingAllocator(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace lowtide
