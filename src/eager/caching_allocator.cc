#include "lowtide/caching_allocator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "eager/allocator_settings.h"
#include "eager/chunks.h"
#include "lowtide/budget.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kSmallRequest = kMiB;  // the largest that is small
constexpr std::uint64_t kSmallSegment = 2 * kMiB;
constexpr std::uint64_t kOwnSegment = 10 * kMiB;  // from here on, requests get segments of their own size
constexpr std::uint64_t kSegmentRounding = 2 * kMiB;

// No device has as much, and sums of a few such amounts fit 64 bits.
constexpr std::uint64_t kMostCapacity = std::uint64_t{1} << 61;
constexpr std::uint64_t kMostRequest = std::uint64_t{1} << 62;

// What a request has become: no block for no bytes, and none once it is freed.
constexpr ChunkIndex kNothing = kNoChunk;
constexpr ChunkIndex kFreed = kNoChunk - 1;

void raise(HighWater& amount, std::uint64_t bytes) {
  amount.now += Bytes(bytes);
  amount.peak = std::max(amount.peak, amount.now);
}

void lower(HighWater& amount, std::uint64_t bytes) {
  amount.now -= Bytes(bytes);
}

}  // namespace

double AllocatorStats::fragmentation() const {
  if (reserved.peak == Bytes(0)) return 0;
  return 1 - static_cast<double>(requested.peak.count()) / static_cast<double>(reserved.peak.count());
}

class CachingAllocator::State {
 public:
  State(const AllocatorSettings& settings, Bytes capacity)
      : settings_(settings), capacity_(std::min(capacity.count(), kMostCapacity)) {
    if (settings.per_process_memory_fraction < 1) {
      allowed_ = static_cast<std::uint64_t>(settings.per_process_memory_fraction * static_cast<double>(capacity_));
    }
  }

  Result<RequestId> allocate(Bytes bytes, std::uint32_t stream);
  Status free(RequestId request);
  void empty_cache();

  const AllocatorStats& stats() const { return stats_; }
  const std::optional<OutOfMemory>& out_of_memory() const { return out_of_memory_; }
  std::optional<AllocatedBlock> block(RequestId request) const;
  std::vector<SnapshotBlock> snapshot() const { return chunks_.snapshot(); }

 private:
  struct Request {
    std::uint64_t size;     // rounded
    std::uint64_t segment;  // the size of one that would be made for it
    bool small;
    std::uint32_t pool;
  };

  struct Given {
    ChunkIndex chunk;
    std::uint64_t size;  // as asked for
  };

  Request to_request(Bytes bytes, std::uint32_t stream);
  std::uint32_t pool_of(bool small, std::uint32_t stream);

  // Each gives a chunk that holds the request and is in no set, or kNoChunk.
  ChunkIndex find(const Request& request);
  ChunkIndex make(const Request& request);
  ChunkIndex make_segment(const Request& request);
  ChunkIndex make_room(const Request& request);
  ChunkIndex search(const Request& request);

  bool collects_garbage() const { return allowed_ && settings_.garbage_collection_threshold > 0; }
  bool should_split(const Request& request, ChunkIndex chunk) const;
  std::uint64_t page_of(std::uint32_t pool) const { return pool_is_small_[pool] ? kSmallSegment : large_segment(); }
  std::uint64_t large_segment() const { return settings_.large_segment_size.count(); }
  std::uint64_t address_space(std::uint32_t pool) const { return round_up(capacity_ + capacity_ / 8, page_of(pool)); }
  bool has_room(std::uint64_t size) const { return stats_.reserved.now.count() + size <= capacity_; }

  ChunkIndex place_to_map(const Request& request);
  ChunkIndex map(ChunkIndex chunk, std::uint64_t size);
  void unmap(ChunkIndex chunk);

  void collect_garbage();
  bool release_oversize(const Request& request);
  void release_segment(ChunkIndex chunk);
  std::vector<ChunkIndex> whole_free_segments(bool small_too) const;
  void put_free(ChunkIndex chunk) { chunks_.put(chunk, BlockState::free, searches_); }
  Error full(Bytes bytes, const Request& request);

  AllocatorSettings settings_;
  std::uint64_t capacity_;
  std::optional<std::uint64_t> allowed_;
  Chunks chunks_;
  std::map<std::pair<bool, std::uint32_t>, std::uint32_t> pools_;  // by small and stream
  std::vector<bool> pool_is_small_;
  std::uint64_t searches_ = 0;  // in the large pool: the clock that ages are told by
  std::vector<Given> given_;    // by request
  AllocatorStats stats_;
  std::optional<OutOfMemory> out_of_memory_;
};

Result<RequestId> CachingAllocator::State::allocate(Bytes bytes, std::uint32_t stream) {
  if (given_.size() >= kMaxIds) {
    return Error{ErrorCode::too_many_objects, "more than " + std::to_string(kMaxIds) + " requests"};
  }
  const RequestId id(given_.size());
  if (bytes == Bytes(0)) {
    given_.push_back({kNothing, 0});
    return id;
  }
  const Request request = to_request(bytes, stream);
  const ChunkIndex chunk = search(request);
  if (chunk == kNoChunk) return full(bytes, request);
  if (should_split(request, chunk)) put_free(chunks_.cut(chunk, request.size));
  given_.push_back({chunk, bytes.count()});
  raise(stats_.requested, bytes.count());
  raise(stats_.allocated, chunks_[chunk].size);
  return id;
}

Status CachingAllocator::State::free(RequestId request) {
  if (request.index() >= given_.size() || given_[request.index()].chunk == kFreed) {
    const char* why = request.index() < given_.size() ? " is freed already" : " was never given";
    return Error{ErrorCode::unknown_request, "request " + std::to_string(request.value()) + why};
  }
  const auto [chunk, size] = std::exchange(given_[request.index()], {kFreed, 0});
  if (chunk == kNothing) return Done{};
  lower(stats_.requested, size);
  lower(stats_.allocated, chunks_[chunk].size);
  put_free(chunk);
  return Done{};
}

std::optional<AllocatedBlock> CachingAllocator::State::block(RequestId request) const {
  if (request.index() >= given_.size()) return std::nullopt;
  const ChunkIndex chunk = given_[request.index()].chunk;
  if (chunk == kNothing || chunk == kFreed) return std::nullopt;
  return AllocatedBlock{chunks_[chunk].segment, Bytes(chunks_[chunk].offset), Bytes(chunks_[chunk].size)};
}

CachingAllocator::State::Request CachingAllocator::State::to_request(Bytes bytes, std::uint32_t stream) {
  const std::uint64_t size = rounded_request(settings_, std::min(bytes.count(), kMostRequest));
  const bool small = size <= kSmallRequest;
  const std::uint64_t segment = small                ? kSmallSegment
                                : size < kOwnSegment ? large_segment()
                                                     : round_up(size, kSegmentRounding);
  return {size, segment, small, pool_of(small, stream)};
}

std::uint32_t CachingAllocator::State::pool_of(bool small, std::uint32_t stream) {
  const auto [at, is_new] = pools_.try_emplace({small, stream});
  if (is_new) {
    at->second = chunks_.add_pool();
    pool_is_small_.push_back(small);
  }
  return at->second;
}

ChunkIndex CachingAllocator::State::search(const Request& request) {
  if (const ChunkIndex found = find(request); found != kNoChunk) return found;
  if (collects_garbage()) collect_garbage();
  if (const ChunkIndex made = make(request); made != kNoChunk) return made;
  if (release_oversize(request)) {
    if (const ChunkIndex made = make(request); made != kNoChunk) return made;
  }
  empty_cache();
  ++stats_.retries;
  return make(request);
}

// The best fit, unless max_split_size keeps it from this request; then a worse fit is not looked for.
ChunkIndex CachingAllocator::State::find(const Request& request) {
  if (!request.small) ++searches_;
  const std::set<FreeChunks::Entry>& free = chunks_.pool(request.pool).free;
  auto best = free.lower_bound({request.size, 0, 0, kNoChunk});
  if (best == free.end()) return kNoChunk;
  if (settings_.expandable_segments) {
    // A block that could grow counts as what it could grow to, so that others are taken first.
    const auto reach = [&](const FreeChunks::Entry& entry) {
      const ChunkIndex after = chunks_[entry.chunk].after;
      const bool grows = after != kNoChunk && chunks_[after].state == BlockState::unmapped;
      return entry.size + (grows ? chunks_[after].size : 0);
    };
    for (auto next = std::next(best); next != free.end() && reach(*next) < reach(*best); ++next) best = next;
  }
  const std::uint64_t oversize = settings_.max_split_size.count();
  if (request.size < oversize && best->size >= oversize) return kNoChunk;
  if (request.size >= oversize && best->size - request.size >= settings_.max_non_split_rounding.count()) {
    return kNoChunk;
  }
  const ChunkIndex chunk = best->chunk;
  chunks_.take(chunk);
  return chunk;
}

bool CachingAllocator::State::should_split(const Request& request, ChunkIndex chunk) const {
  const std::uint64_t rest = chunks_[chunk].size - request.size;
  if (request.small || settings_.expandable_segments) return rest >= kMinBlock;
  return request.size < settings_.max_split_size.count() && rest > kSmallRequest;
}

ChunkIndex CachingAllocator::State::make(const Request& request) {
  // The limit looks at the size of a segment even where only pages would be mapped.
  if (allowed_ && stats_.reserved.now.count() + request.segment > *allowed_) return kNoChunk;
  return settings_.expandable_segments ? make_room(request) : make_segment(request);
}

ChunkIndex CachingAllocator::State::make_segment(const Request& request) {
  if (!has_room(request.segment)) return kNoChunk;
  ++stats_.device_allocs;
  ++stats_.segments;
  raise(stats_.reserved, request.segment);
  return chunks_.add_segment(request.pool, request.segment);
}

// Maps pages at the lowest place, until the free block there is large enough. Where the device has too few, those that
// were mapped before stay.
ChunkIndex CachingAllocator::State::make_room(const Request& request) {
  ChunkIndex chunk = place_to_map(request);
  if (chunk == kNoChunk) return kNoChunk;
  if (chunks_[chunk].state == BlockState::unmapped) chunk = map(chunk, std::min(chunks_[chunk].size, request.size));
  while (chunk != kNoChunk && chunks_[chunk].size < request.size) {
    const ChunkIndex after = chunks_[chunk].after;
    chunk = map(after, std::min(chunks_[after].size, request.size - chunks_[chunk].size));
  }
  if (chunk != kNoChunk) chunks_.take(chunk);
  return chunk;
}

// A free or unmapped chunk, from which on enough is free or unmapped.
ChunkIndex CachingAllocator::State::place_to_map(const Request& request) {
  const auto allocatable = [&](ChunkIndex chunk) {
    return chunk != kNoChunk && chunks_[chunk].state != BlockState::allocated;
  };
  for (const FreeChunks::Entry& entry : chunks_.pool(request.pool).unmapped) {
    const ChunkIndex before = chunks_[entry.chunk].before;
    const ChunkIndex first = allocatable(before) ? before : entry.chunk;
    std::uint64_t room = 0;
    for (ChunkIndex at = first; room < request.size && allocatable(at); at = chunks_[at].after) {
      room += chunks_[at].size;
    }
    if (room >= request.size) return first;
  }
  const std::uint64_t space = address_space(request.pool);
  if (space < request.size) return kNoChunk;
  ++stats_.segments;
  return chunks_.put(chunks_.add_segment(request.pool, space), BlockState::unmapped, searches_);
}

// The first pages of an unmapped chunk, as many as `size` needs. Gives the free chunk that they are part of.
ChunkIndex CachingAllocator::State::map(ChunkIndex chunk, std::uint64_t size) {
  const std::uint64_t mapped = round_up(size, page_of(chunks_[chunk].pool));
  if (!has_room(mapped)) return kNoChunk;
  chunks_.take(chunk);
  if (mapped < chunks_[chunk].size) chunks_.put(chunks_.cut(chunk, mapped), BlockState::unmapped, searches_);
  ++stats_.device_allocs;
  raise(stats_.reserved, mapped);
  return chunks_.put(chunk, BlockState::free, searches_);
}

// The pages that lie in a free chunk as a whole.
void CachingAllocator::State::unmap(ChunkIndex chunk) {
  const Chunk& free = chunks_[chunk];
  const std::uint64_t page = page_of(free.pool);
  const std::uint64_t begin = round_up(free.offset, page);
  const std::uint64_t end = (free.offset + free.size) / page * page;
  if (begin >= end) return;
  const std::uint64_t before = begin - free.offset;
  chunks_.take(chunk);
  if (before > 0) {
    const ChunkIndex rest = chunks_.cut(chunk, before);
    put_free(chunk);
    chunk = rest;
  }
  if (end - begin < chunks_[chunk].size) put_free(chunks_.cut(chunk, end - begin));
  ++stats_.device_frees;
  lower(stats_.reserved, end - begin);
  chunk = chunks_.put(chunk, BlockState::unmapped, searches_);
  if (!chunks_[chunk].is_whole_segment()) return;
  chunks_.take(chunk);
  chunks_.remove_segment(chunk);
  --stats_.segments;
}

void CachingAllocator::State::empty_cache() {
  if (!settings_.expandable_segments) {
    for (const ChunkIndex chunk : whole_free_segments(true)) release_segment(chunk);
    return;
  }
  std::vector<ChunkIndex> free;
  for (std::uint32_t pool = 0; pool < chunks_.num_pools(); ++pool) {
    for (const FreeChunks::Entry& entry : chunks_.pool(pool).free) free.push_back(entry.chunk);
  }
  for (const ChunkIndex chunk : free) unmap(chunk);
}

// Large segments of at least average age are released, all of them, until enough is; ages are counted in searches.
void CachingAllocator::State::collect_garbage() {
  if (settings_.expandable_segments) return;
  const auto threshold =
      static_cast<std::uint64_t>(settings_.garbage_collection_threshold * static_cast<double>(*allowed_));
  const std::uint64_t reserved = stats_.reserved.now.count();
  if (reserved <= threshold) return;
  const auto age = [&](ChunkIndex chunk) { return searches_ - chunks_[chunk].freed_at; };
  std::vector<ChunkIndex> left = whole_free_segments(false);
  while (!left.empty() && reserved - stats_.reserved.now.count() < reserved - threshold) {
    std::uint64_t total = 0;
    for (const ChunkIndex chunk : left) total += age(chunk);
    const double average = static_cast<double>(total) / static_cast<double>(left.size());
    std::erase_if(left, [&](ChunkIndex chunk) {
      if (static_cast<double>(age(chunk)) < average) return false;
      release_segment(chunk);
      return true;
    });
  }
}

// If max_split_size is set: the smallest oversize segment that is large enough for the request, or else the largest
// ones, as many as together are. Whether that much was released.
bool CachingAllocator::State::release_oversize(const Request& request) {
  if (settings_.max_split_size == Bytes::max() || settings_.expandable_segments) return false;
  const std::uint64_t oversize = settings_.max_split_size.count();
  const std::uint64_t wanted = std::max(request.size, oversize);
  const std::set<FreeChunks::Entry>& free = chunks_.pool(request.pool).free;
  if (const auto enough = free.lower_bound({wanted, 0, 0, kNoChunk}); enough != free.end()) {
    release_segment(enough->chunk);
    return true;
  }
  std::uint64_t released = 0;
  while (released < wanted && !free.empty() && free.rbegin()->size >= oversize) {
    released += free.rbegin()->size;
    release_segment(free.rbegin()->chunk);
  }
  return released >= wanted;
}

void CachingAllocator::State::release_segment(ChunkIndex chunk) {
  ++stats_.device_frees;
  --stats_.segments;
  lower(stats_.reserved, chunks_[chunk].size);
  chunks_.take(chunk);
  chunks_.remove_segment(chunk);
}

std::vector<ChunkIndex> CachingAllocator::State::whole_free_segments(bool small_too) const {
  std::vector<ChunkIndex> segments;
  for (std::uint32_t pool = 0; pool < chunks_.num_pools(); ++pool) {
    if (pool_is_small_[pool] && !small_too) continue;
    for (const FreeChunks::Entry& entry : chunks_.pool(pool).free) {
      if (chunks_[entry.chunk].is_whole_segment()) segments.push_back(entry.chunk);
    }
  }
  return segments;
}

Error CachingAllocator::State::full(Bytes bytes, const Request& request) {
  ++stats_.ooms;
  const Bytes allocated = stats_.allocated.now;
  const Bytes reserved = stats_.reserved.now;
  const OutOfMemory& full = out_of_memory_.emplace(
      OutOfMemory{bytes, Bytes(request.segment), Bytes(capacity_), Bytes(capacity_) - reserved, allocated, reserved});
  return {ErrorCode::device_full, "out of memory: tried to allocate " + format_bytes(full.tried) +
                                      " for a request of " + format_bytes(bytes) + "; of " +
                                      format_bytes(full.capacity) + ", " + format_bytes(full.free) + " are free, " +
                                      format_bytes(allocated) + " are allocated, and " +
                                      format_bytes(full.reserved_but_unallocated()) + " are reserved but unallocated"};
}

Result<CachingAllocator> CachingAllocator::make(const AllocatorSettings& settings, Bytes capacity) {
  if (const Status status = check(settings); !status.ok()) return status.error();
  return CachingAllocator(std::make_unique<State>(settings, capacity));
}

CachingAllocator::CachingAllocator(std::unique_ptr<State> state) : state_(std::move(state)) {}
CachingAllocator::CachingAllocator(CachingAllocator&&) noexcept = default;
CachingAllocator& CachingAllocator::operator=(CachingAllocator&&) noexcept = default;
CachingAllocator::~CachingAllocator() = default;

Result<RequestId> CachingAllocator::allocate(Bytes size, std::uint32_t stream) {
  return state_->allocate(size, stream);
}

Status CachingAllocator::free(RequestId request) {
  return state_->free(request);
}

void CachingAllocator::empty_cache() {
  state_->empty_cache();
}

const AllocatorStats& CachingAllocator::stats() const {
  return state_->stats();
}

const std::optional<OutOfMemory>& CachingAllocator::out_of_memory() const {
  return state_->out_of_memory();
}

std::optional<AllocatedBlock> CachingAllocator::block(RequestId request) const {
  return state_->block(request);
}

std::vector<SnapshotBlock> CachingAllocator::snapshot() const {
  return state_->snapshot();
}

}  // namespace lowtide
