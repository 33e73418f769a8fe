#include "eager/chunks.h"

#include <algorithm>
#include <cassert>

namespace lowtide {

std::uint32_t Chunks::add_pool() {
  pools_.emplace_back();
  return static_cast<std::uint32_t>(pools_.size() - 1);
}

ChunkIndex Chunks::add_segment(std::uint32_t pool, std::uint64_t size) {
  ++num_segments_;
  return add({.segment = next_segment_++, .offset = 0, .size = size, .pool = pool});
}

void Chunks::remove_segment(ChunkIndex chunk) {
  assert(chunks_[chunk].is_whole_segment() && chunks_[chunk].state == BlockState::allocated);
  --num_segments_;
  remove(chunk);
}

void Chunks::take(ChunkIndex chunk) {
  set_of(chunks_[chunk]).erase(entry(chunk));
  chunks_[chunk].state = BlockState::allocated;
}

void Chunks::join_next(ChunkIndex chunk) {
  const ChunkIndex next = chunks_[chunk].after;
  chunks_[chunk].size += chunks_[next].size;
  chunks_[chunk].after = chunks_[next].after;
  if (chunks_[next].after != kNoChunk) chunks_[chunks_[next].after].before = chunk;
  remove(next);
}

ChunkIndex Chunks::put(ChunkIndex chunk, BlockState state, std::uint64_t clock) {
  const ChunkIndex before = chunks_[chunk].before;
  if (before != kNoChunk && chunks_[before].state == state) {
    take(before);
    join_next(before);
    chunk = before;
  }
  const ChunkIndex after = chunks_[chunk].after;
  if (after != kNoChunk && chunks_[after].state == state) {
    take(after);
    join_next(chunk);
  }
  chunks_[chunk].state = state;
  chunks_[chunk].freed_at = clock;
  set_of(chunks_[chunk]).insert(entry(chunk));
  return chunk;
}

ChunkIndex Chunks::cut(ChunkIndex chunk, std::uint64_t size) {
  const Chunk whole = chunks_[chunk];
  assert(size < whole.size && whole.state == BlockState::allocated);
  const ChunkIndex rest = add({.segment = whole.segment,
                               .offset = whole.offset + size,
                               .size = whole.size - size,
                               .pool = whole.pool,
                               .before = chunk,
                               .after = whole.after});
  if (whole.after != kNoChunk) chunks_[whole.after].before = rest;
  chunks_[chunk].after = rest;
  chunks_[chunk].size = size;
  return rest;
}

std::vector<SnapshotBlock> Chunks::snapshot() const {
  std::vector<SnapshotBlock> blocks;
  for (ChunkIndex i = 0; i < chunks_.size(); ++i) {
    if (!used_[i]) continue;
    const Chunk& chunk = chunks_[i];
    blocks.push_back({{chunk.segment, Bytes(chunk.offset), Bytes(chunk.size)}, chunk.state});
  }
  std::ranges::sort(blocks, {}, [](const SnapshotBlock& block) { return std::pair(block.segment, block.offset); });
  return blocks;
}

ChunkIndex Chunks::add(const Chunk& chunk) {
  if (!vacated_.empty()) {
    const ChunkIndex index = vacated_.back();
    vacated_.pop_back();
    chunks_[index] = chunk;
    used_[index] = true;
    return index;
  }
  chunks_.push_back(chunk);
  used_.push_back(true);
  return static_cast<ChunkIndex>(chunks_.size() - 1);
}

void Chunks::remove(ChunkIndex chunk) {
  used_[chunk] = false;
  vacated_.push_back(chunk);
}

std::set<FreeChunks::Entry>& Chunks::set_of(const Chunk& chunk) {
  assert(chunk.state != BlockState::allocated);
  FreeChunks& pool = pools_[chunk.pool];
  return chunk.state == BlockState::free ? pool.free : pool.unmapped;
}

FreeChunks::Entry Chunks::entry(ChunkIndex index) const {
  const Chunk& chunk = chunks_[index];
  return {chunk.state == BlockState::free ? chunk.size : 0, chunk.segment, chunk.offset, index};
}

}  // namespace lowtide
