#include "tier/contents.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "tier/file_mappings.h"

namespace lowtide::tier {

Contents::Contents(std::shared_ptr<const Descriptor> file) : file_(std::move(file)), last_change_(change_time()) {}

timespec Contents::change_time() const {
  struct stat found = {};
  fstat(file_->number(), &found);
  return found.st_mtim;
}

bool Contents::has_changed() const {
  const timespec now = change_time();
  return now.tv_sec != last_change_.tv_sec || now.tv_nsec != last_change_.tv_nsec;
}

// Before the time of change says nothing any more about what somebody else has written.
void Contents::begin_change() {
  if (changes_++ > 0 || homes_.empty() || !has_changed()) return;
  for (const auto& [offset, home] : homes_) forget(offset, home.bytes);
}

void Contents::end_change() {
  if (--changes_ == 0) last_change_ = change_time();
}

Contents::Extents::const_iterator Contents::first_after(std::int64_t offset) const {
  auto found = extents_.upper_bound(offset);
  if (found != extents_.begin() && std::prev(found)->first + std::prev(found)->second.bytes > offset) --found;
  return found;
}

void Contents::forget(std::int64_t offset, std::int64_t bytes, bool lost) {
  const std::int64_t end = offset + bytes;
  for (auto next = first_after(offset); next != extents_.end() && next->first < end;) {
    const auto [begin, extent] = *next;
    if (extent.checksums.empty() && !lost) {
      ++next;
      continue;
    }
    next = extents_.erase(next);
    if (!extent.checksums.empty()) continue;
    // What is around is still lost.
    if (begin < offset) extents_.emplace(begin, Extent{offset - begin, {}});
    if (begin + extent.bytes > end) extents_.emplace(end, Extent{begin + extent.bytes - end, {}});
  }
}

void Contents::begin_store(std::int64_t offset, std::int64_t bytes) {
  begin_change();
  forget(offset, bytes, /*lost=*/true);
  extents_.emplace(offset, Extent{bytes, {}});
}

void Contents::end_store(std::int64_t offset, std::int64_t bytes, Checksums checksums) {
  extents_[offset] = {bytes, std::move(checksums)};
}

bool Contents::is_lost(std::int64_t offset, std::int64_t bytes) const {
  for (auto next = first_after(offset); next != extents_.end() && next->first < offset + bytes; ++next) {
    if (next->second.checksums.empty()) return true;
  }
  return false;
}

const Contents::Home* Contents::home_around(std::int64_t offset, std::int64_t bytes, std::int64_t* begin) const {
  auto after = homes_.upper_bound(offset);
  if (after == homes_.begin()) return nullptr;
  const auto& [found, home] = *--after;
  *begin = found;
  return offset + bytes <= found + home.bytes ? &home : nullptr;
}

bool Contents::is_right(std::int64_t offset, std::int64_t bytes, const std::byte* memory, const Checksums& loaded) {
  const auto stored = extents_.find(offset);
  const bool known = stored != extents_.end() && stored->second.bytes == bytes;
  if (known && stored->second.checksums == loaded) return true;
  std::int64_t begin = 0;
  const Home* home = home_around(offset, bytes, &begin);
  if (home == nullptr) return !known;
  if (known) {
    const std::byte* mapped = home->mapping + (offset - begin);
    const bool written = has_pages(mapped, bytes) ? std::memcmp(mapped, memory, static_cast<std::size_t>(bytes)) == 0
                                                  : changes_ == 0 && has_changed();
    if (!written) return false;
  }
  forget(offset, bytes);
  extents_.emplace(offset, Extent{bytes, loaded});
  return true;
}

void Contents::add_home(std::int64_t offset, std::int64_t bytes, const std::byte* mapping) {
  homes_.emplace(offset, Home{bytes, mapping});
}

void Contents::remove_home(std::int64_t offset) {
  homes_.erase(offset);
}

}  // namespace lowtide::tier
