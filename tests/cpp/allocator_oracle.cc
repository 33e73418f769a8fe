#include "allocator_oracle.h"

#include <algorithm>
#include <tuple>

namespace lowtide {
namespace {

constexpr std::uint64_t kMiB = 1048576;

std::uint64_t pages(std::uint64_t size, std::uint64_t page) {
  return size / page + (size % page == 0 ? 0 : 1);
}

}  // namespace

AllocatorOracle::AllocatorOracle(const AllocatorSettings& settings, std::uint64_t capacity)
    : settings_(settings), capacity_(capacity) {
  const double fraction = settings.per_process_memory_fraction;
  if (fraction < 1) allowed_ = static_cast<std::uint64_t>(fraction * static_cast<double>(capacity));
}

// Steps are found by trying: a power of two, and so many equal steps to the next.
std::uint64_t AllocatorOracle::rounded(std::uint64_t size) const {
  std::uint64_t power = 512;
  while (power * 2 <= size) power *= 2;
  std::size_t interval = 0;
  while (interval < 15 && (kMiB << (interval + 1)) <= size) ++interval;
  const std::uint64_t divisions = settings_.roundup_power2_divisions[interval];
  const std::uint64_t step = divisions > 1 && size > 512 * divisions ? power / divisions : 512;
  return pages(size, step) * step;
}

std::uint64_t AllocatorOracle::page(bool small) const {
  return small ? 2 * kMiB : settings_.large_segment_size.count();
}

std::uint64_t AllocatorOracle::allocated() const {
  std::uint64_t sum = 0;
  for (const auto& [id, segment] : segments_) {
    for (const auto& [offset, size] : segment.live) sum += size;
  }
  return sum;
}

std::uint64_t AllocatorOracle::reserved() const {
  std::uint64_t sum = 0;
  for (const auto& [id, segment] : segments_) {
    const auto count = static_cast<std::uint64_t>(std::ranges::count(segment.mapped, true));
    sum += settings_.expandable_segments ? count * page(segment.small) : segment.size;
  }
  return sum;
}

// Pages of plain segments are all mapped; the last may end early.
std::vector<AllocatorOracle::Span> AllocatorOracle::spans(const Segment& segment, bool mapped) const {
  std::vector<Span> found;
  const auto add = [&](std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    if (!found.empty() && found.back().end == begin) {
      found.back().end = end;
    } else {
      found.push_back({begin, end});
    }
  };
  for (std::size_t i = 0; i < segment.mapped.size(); ++i) {
    if (segment.mapped[i] != mapped) continue;
    std::uint64_t at = i * page(segment.small);
    const std::uint64_t end = std::min(at + page(segment.small), segment.size);
    for (const auto& [offset, size] : segment.live) {
      if (offset + size <= at || offset >= end) continue;
      add(at, offset);
      at = std::min(offset + size, end);
    }
    add(at, end);
  }
  return found;
}

std::optional<AllocatedBlock> AllocatorOracle::allocate(std::uint64_t asked, std::uint32_t stream) {
  const std::uint64_t size = rounded(asked);
  const bool small = size <= kMiB;
  std::optional<Found> found = best_fit(size, small, stream);
  if (!found) {
    if (allowed_ && settings_.garbage_collection_threshold > 0) collect_garbage();
    found = make(size, small, stream);
  }
  if (!found && !small && release_oversize(size, stream)) found = make(size, small, stream);
  if (!found) {
    empty_cache();
    ++retries;
    found = make(size, small, stream);
  }
  if (!found) {
    ++ooms;
    return std::nullopt;
  }
  const std::uint64_t rest = found->span.size() - size;
  const bool splits =
      small || settings_.expandable_segments ? rest >= 512 : rest > kMiB && size < settings_.max_split_size.count();
  const std::uint64_t given = splits ? size : found->span.size();
  segments_.at(found->segment).live[found->span.begin] = given;
  return AllocatedBlock{found->segment, Bytes(found->span.begin), Bytes(given)};
}

void AllocatorOracle::free(const AllocatedBlock& block) {
  Segment& segment = segments_.at(block.segment);
  segment.live.erase(block.offset.count());
  segment.freed_at = clock_;
}

std::optional<AllocatorOracle::Found> AllocatorOracle::best_fit(std::uint64_t size, bool small, std::uint32_t stream) {
  if (!small) ++clock_;
  struct Candidate {
    Found found;
    std::uint64_t reach;
  };
  std::vector<Candidate> candidates;
  for (const auto& [id, segment] : segments_) {
    if (segment.small != small || segment.stream != stream) continue;
    const std::vector<Span> unmapped = spans(segment, false);
    for (const Span& span : spans(segment, true)) {
      if (span.size() < size) continue;
      const auto next = std::ranges::find(unmapped, span.end, &Span::begin);
      candidates.push_back({{id, span}, span.size() + (next == unmapped.end() ? 0 : next->size())});
    }
  }
  std::ranges::sort(candidates, {}, [](const Candidate& candidate) {
    return std::tuple(candidate.found.span.size(), candidate.found.segment, candidate.found.span.begin);
  });
  if (candidates.empty()) return std::nullopt;
  std::size_t best = 0;
  if (settings_.expandable_segments) {
    while (best + 1 < candidates.size() && candidates[best + 1].reach < candidates[best].reach) ++best;
  }
  const Found found = candidates[best].found;
  const bool oversize = size >= settings_.max_split_size.count();
  if (!oversize && found.span.size() >= settings_.max_split_size.count()) return std::nullopt;
  if (oversize && found.span.size() >= size + settings_.max_non_split_rounding.count()) return std::nullopt;
  return found;
}

std::optional<AllocatorOracle::Found> AllocatorOracle::make(std::uint64_t size, bool small, std::uint32_t stream) {
  const std::uint64_t whole = small              ? 2 * kMiB
                              : size < 10 * kMiB ? settings_.large_segment_size.count()
                                                 : pages(size, 2 * kMiB) * 2 * kMiB;
  if (allowed_ && reserved() + whole > *allowed_) return std::nullopt;
  if (settings_.expandable_segments) return make_room(size, small, stream);
  if (reserved() + whole > capacity_) return std::nullopt;
  ++device_allocs;
  segments_[next_segment_] = {small, stream, whole, std::vector<bool>(pages(whole, page(small)), true), {}, 0};
  return Found{next_segment_++, {0, whole}};
}

std::optional<AllocatorOracle::Found> AllocatorOracle::make_room(std::uint64_t size, bool small, std::uint32_t stream) {
  std::optional<Found> room;
  for (const auto& [id, segment] : segments_) {
    if (!room && segment.small == small && segment.stream == stream) room = room_in(id, size);
  }
  if (!room) {
    const std::uint64_t count = pages(capacity_ + capacity_ / 8, page(small));
    if (count * page(small) < size) return std::nullopt;
    segments_[next_segment_] = {small, stream, count * page(small), std::vector<bool>(count, false), {}, 0};
    room = Found{next_segment_++, {0, count * page(small)}};
  }
  Segment& segment = segments_.at(room->segment);
  const std::uint64_t begin = room->span.begin;
  while (true) {
    const std::vector<Span> free = spans(segment, true);
    const auto here = std::ranges::find(free, begin, &Span::begin);
    const std::uint64_t there = here == free.end() ? 0 : here->size();
    if (there >= size) return Found{room->segment, *here};
    const std::vector<Span> unmapped = spans(segment, false);
    const auto next = std::ranges::find(unmapped, begin + there, &Span::begin);
    const std::uint64_t count = pages(std::min(next->size(), size - there), page(small));
    if (reserved() + count * page(small) > capacity_) return std::nullopt;
    ++device_allocs;
    for (std::uint64_t i = 0; i < count; ++i) segment.mapped[(begin + there) / page(small) + i] = true;
  }
}

// From the first place on that is not mapped, or what is free before it, to the next request.
std::optional<AllocatorOracle::Found> AllocatorOracle::room_in(std::uint64_t id, std::uint64_t size) const {
  const Segment& segment = segments_.at(id);
  for (const Span& hole : spans(segment, false)) {
    std::uint64_t begin = hole.begin;
    for (const Span& free : spans(segment, true)) {
      if (free.end == hole.begin) begin = free.begin;
    }
    const auto next = segment.live.lower_bound(hole.begin);
    const std::uint64_t end = next == segment.live.end() ? segment.size : next->first;
    if (end - begin >= size) return Found{id, {begin, end}};
  }
  return std::nullopt;
}

bool AllocatorOracle::release_oversize(std::uint64_t size, std::uint32_t stream) {
  if (settings_.max_split_size == Bytes::max() || settings_.expandable_segments) return false;
  const std::uint64_t oversize = settings_.max_split_size.count();
  const std::uint64_t wanted = std::max(size, oversize);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> segments;  // by size
  for (const auto& [id, segment] : segments_) {
    if (!segment.small && segment.stream == stream && segment.live.empty() && segment.size >= oversize) {
      segments.emplace_back(segment.size, id);
    }
  }
  std::ranges::sort(segments);
  const auto enough = std::ranges::find_if(segments, [&](const auto& segment) { return segment.first >= wanted; });
  if (enough != segments.end()) {
    release(enough->second);
    return true;
  }
  std::uint64_t released = 0;
  while (!segments.empty() && released < wanted) {
    released += segments.back().first;
    release(segments.back().second);
    segments.pop_back();
  }
  return released >= wanted;
}

void AllocatorOracle::collect_garbage() {
  if (settings_.expandable_segments) return;
  const auto threshold =
      static_cast<std::uint64_t>(settings_.garbage_collection_threshold * static_cast<double>(*allowed_));
  while (reserved() > threshold) {
    std::vector<std::uint64_t> ids;
    double ages = 0;
    for (const auto& [id, segment] : segments_) {
      if (segment.small || !segment.live.empty()) continue;
      ids.push_back(id);
      ages += static_cast<double>(clock_ - segment.freed_at);
    }
    if (ids.empty()) return;
    for (const std::uint64_t id : ids) {
      const auto age = static_cast<double>(clock_ - segments_.at(id).freed_at);
      if (age >= ages / static_cast<double>(ids.size())) release(id);
    }
  }
}

void AllocatorOracle::empty_cache() {
  std::vector<std::uint64_t> done;
  for (auto& [id, segment] : segments_) {
    if (!settings_.expandable_segments) {
      if (segment.live.empty()) done.push_back(id);
      continue;
    }
    bool any = false;
    for (const Span& free : spans(segment, true)) {
      const std::uint64_t first = pages(free.begin, page(segment.small));
      const std::uint64_t last = free.end / page(segment.small);
      if (first >= last) continue;
      any = true;
      ++device_frees;
      for (std::uint64_t i = first; i < last; ++i) segment.mapped[i] = false;
    }
    if (any && std::ranges::count(segment.mapped, true) == 0) done.push_back(id);
  }
  for (const std::uint64_t id : done) {
    if (settings_.expandable_segments) {
      segments_.erase(id);
    } else {
      release(id);
    }
  }
}

void AllocatorOracle::release(std::uint64_t segment) {
  ++device_frees;
  segments_.erase(segment);
}

}  // namespace lowtide
