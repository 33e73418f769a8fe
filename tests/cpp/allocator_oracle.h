// allocator_oracle.h: the rules of caching_allocator.h once more, as plainly as they can be written.
//
// It keeps for each segment which of its bytes requests hold and which of its pages are mapped, nothing else: what is
// free is found anew for each request, by going through everything. It shares no code with the library.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "lowtide/caching_allocator.h"

namespace lowtide {

class AllocatorOracle {
 public:
  AllocatorOracle(const AllocatorSettings& settings, std::uint64_t capacity);

  // Where it lies, or nothing if the device is full. Sizes above 0 only.
  std::optional<AllocatedBlock> allocate(std::uint64_t size, std::uint32_t stream);
  void free(const AllocatedBlock& block);
  void empty_cache();

  // In the order of AllocatorStats; peaks and requested bytes are left out.
  std::uint64_t allocated() const;
  std::uint64_t reserved() const;
  std::size_t num_segments() const { return segments_.size(); }
  std::uint64_t device_allocs = 0, device_frees = 0, retries = 0, ooms = 0;

 private:
  struct Span {
    std::uint64_t begin, end;
    std::uint64_t size() const { return end - begin; }
  };
  struct Segment {
    bool small;
    std::uint32_t stream;
    std::uint64_t size;
    std::vector<bool> mapped;                     // by page
    std::map<std::uint64_t, std::uint64_t> live;  // sizes by offset
    std::uint64_t freed_at = 0;                   // what the clock said at its last free
  };
  struct Found {
    std::uint64_t segment;
    Span span;
  };

  std::uint64_t rounded(std::uint64_t size) const;
  std::uint64_t page(bool small) const;
  std::vector<Span> spans(const Segment& segment, bool mapped) const;  // what is free, or not mapped
  std::optional<Found> best_fit(std::uint64_t size, bool small, std::uint32_t stream);
  std::optional<Found> make(std::uint64_t size, bool small, std::uint32_t stream);
  std::optional<Found> make_room(std::uint64_t size, bool small, std::uint32_t stream);
  std::optional<Found> room_in(std::uint64_t id, std::uint64_t size) const;
  bool release_oversize(std::uint64_t size, std::uint32_t stream);
  void collect_garbage();
  void release(std::uint64_t segment);

  AllocatorSettings settings_;
  std::uint64_t capacity_;
  std::optional<std::uint64_t> allowed_;
  std::map<std::uint64_t, Segment> segments_;
  std::uint64_t next_segment_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace lowtide
