// chunks.h: segments, tiled by chunks that know their neighbours, and the sets in which free chunks are found.
//
//   segment 0   | allocated | free | allocated | free ------ | unmapped ------- |
//                                                ^ put() has joined what was free side by side
//
// A chunk in no set is allocated, or in somebody's hands: take() takes it out, put() puts it back.
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <tuple>
#include <vector>

#include "lowtide/caching_allocator.h"

namespace lowtide {

using ChunkIndex = std::uint32_t;
inline constexpr ChunkIndex kNoChunk = std::numeric_limits<ChunkIndex>::max();

struct Chunk {
  std::uint64_t segment;
  std::uint64_t offset;  // in the segment
  std::uint64_t size;
  std::uint32_t pool;
  ChunkIndex before = kNoChunk;  // neighbours in the segment
  ChunkIndex after = kNoChunk;
  BlockState state = BlockState::allocated;
  std::uint64_t freed_at = 0;  // what the clock said when it became free

  bool is_whole_segment() const { return before == kNoChunk && after == kNoChunk; }
};

// What is not allocated of one pool and stream.
struct FreeChunks {
  struct Entry {
    std::uint64_t size;  // 0 among unmapped chunks, which are found by address
    std::uint64_t segment;
    std::uint64_t offset;
    ChunkIndex chunk;

    bool operator<(const Entry& other) const {
      return std::tie(size, segment, offset) < std::tie(other.size, other.segment, other.offset);
    }
  };

  std::set<Entry> free;      // the smallest first, and of equal ones that at the lowest address
  std::set<Entry> unmapped;  // by address
};

class Chunks {
 public:
  std::uint32_t add_pool();
  const FreeChunks& pool(std::uint32_t index) const { return pools_[index]; }
  std::size_t num_pools() const { return pools_.size(); }

  const Chunk& operator[](ChunkIndex chunk) const { return chunks_[chunk]; }

  // A new segment, above all others, that is one chunk.
  ChunkIndex add_segment(std::uint32_t pool, std::uint64_t size);
  // The chunk is a whole segment and in no set.
  void remove_segment(ChunkIndex chunk);
  std::size_t num_segments() const { return num_segments_; }

  // Out of its set.
  void take(ChunkIndex chunk);
  // Into the set of free or unmapped chunks, joined with neighbours there. Gives what it has become.
  ChunkIndex put(ChunkIndex chunk, BlockState state, std::uint64_t clock);
  // The chunk, which is in no set, keeps its first `size` bytes. Gives the rest, which is in no set either.
  ChunkIndex cut(ChunkIndex chunk, std::uint64_t size);

  // Of all segments, by address.
  std::vector<SnapshotBlock> snapshot() const;

 private:
  ChunkIndex add(const Chunk& chunk);
  void remove(ChunkIndex chunk);
  // Both in no set; the next one becomes a part of the chunk.
  void join_next(ChunkIndex chunk);
  std::set<FreeChunks::Entry>& set_of(const Chunk& chunk);
  FreeChunks::Entry entry(ChunkIndex chunk) const;

  std::vector<Chunk> chunks_;
  std::vector<bool> used_;           // by chunk
  std::vector<ChunkIndex> vacated_;  // indices to use again
  std::vector<FreeChunks> pools_;
  std::uint64_t next_segment_ = 0;
  std::size_t num_segments_ = 0;
};

}  // namespace lowtide
