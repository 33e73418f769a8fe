#include "arena.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "allocator.h"

namespace lowtide::torch_runtime {

Arena& Arena::on(Device& device) {
  static std::mutex* mutex = new std::mutex;
  static auto* arenas = new std::vector<Arena*>;  // never destroyed: tensors may outlive every static object
  const std::lock_guard lock(*mutex);
  const auto found =
      std::find_if(arenas->begin(), arenas->end(), [&](const Arena* arena) { return &arena->device_ == &device; });
  if (found != arenas->end()) return **found;
  arenas->push_back(new Arena(device));
  return *arenas->back();
}

void Arena::add_need(std::int64_t bytes) {
  const std::lock_guard lock(needs_mutex_);
  const std::int64_t wanted = device_.whole_pages(bytes);
  if (can_have(wanted)) make_usable(wanted);
  needs_.insert(wanted);
}

bool Arena::can_have(std::int64_t bytes) const {
  return bytes <= usable_ || !device_.moves() || leases_.empty();
}

void Arena::make_usable(std::int64_t bytes) {
  if (bytes <= usable_) return;
  if (device_.moves()) take_turn();
  device_.resize(bytes);
  usable_ = bytes;
}

// Nobody has a lease: there is room now for all that were in annexes.
void Arena::grow_to_most() {
  if (is_too_much_ || !device_.moves() || !leases_.empty()) return;
  try {
    make_usable(most_);
  } catch (const c10::OutOfMemoryError&) {
    is_too_much_ = true;
  }
}

void Arena::remove_need(std::int64_t bytes, std::int64_t keep) {
  // A step of another program may be running in what stays; it cannot be running in what goes.
  const std::lock_guard lock(needs_mutex_);
  needs_.erase(needs_.find(device_.whole_pages(bytes)));
  shrink(keep);
}

void Arena::fit(std::int64_t keep) {
  const std::lock_guard lock(needs_mutex_);
  shrink(keep);
}

void Arena::shrink(std::int64_t keep) {
  const std::int64_t held = std::max(device_.whole_pages(keep), end_of_leases());
  const std::int64_t left = std::max(needs_.empty() ? 0 : *needs_.rbegin(), held);
  is_too_much_ = false;
  if (left < usable_ && (!device_.moves() || leases_.empty())) {
    most_ = left;
    take_turn();  // a step that has paused may lie in what goes
    device_.resize(left);
    usable_ = left;
  }
}

std::int64_t Arena::empty_above(std::int64_t keep) {
  const std::lock_guard lock(needs_mutex_);
  const std::int64_t kept = std::max(device_.whole_pages(keep), end_of_leases());
  device_.empty_above(kept);
  return kept;
}

bool Arena::is_free(std::int64_t begin, std::int64_t end) const {
  const auto next = leases_.lower_bound(begin);
  if (next != leases_.end() && next->first < end) return false;
  return next == leases_.begin() || std::prev(next)->second <= begin;
}

std::int64_t Arena::lowest_free(std::int64_t bytes) const {
  std::int64_t found = 0;
  for (const auto& [begin, end] : leases_) {
    if (found + bytes <= begin) break;
    found = end;
  }
  return found;
}

std::int64_t Arena::end_of_leases() const {
  return leases_.empty() ? 0 : leases_.rbegin()->second;
}

std::int64_t Arena::usable_bytes() const {
  const std::lock_guard lock(needs_mutex_);
  return usable_;
}

std::int64_t Arena::leased_bytes() const {
  const std::lock_guard lock(needs_mutex_);
  return std::accumulate(leases_.begin(), leases_.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& lease) { return sum + lease.second - lease.first; });
}

Lease::Lease(Arena& arena, std::int64_t bytes) {
  const std::lock_guard lock(arena.needs_mutex_);
  arena.take_turn();
  const std::int64_t pages = arena.device_.whole_pages(bytes);
  if (pages == 0) return;
  arena.grow_to_most();
  lie_at(arena, arena.lowest_free(pages), pages);
}

// Wants the mutex of the arena's needs.
void Lease::lie_at(Arena& arena, std::int64_t offset, std::int64_t bytes) {
  const std::int64_t end = offset + bytes;
  if (arena.can_have(end)) {
    arena.make_usable(end);
  } else {
    annex_ = arena.device_.add_annex(bytes);
    annex_bytes_ = bytes;
    serial_ = note_ordinary(arena.device_.where(), annex_, bytes, {});
  }
  offset_ = offset;
  arena.most_ = std::max(arena.most_, end);
  arena.leases_.emplace(offset, end);
  arena_ = &arena;
}

Lease::Lease(Arena& arena, const std::byte* base, std::int64_t bytes) {
  const std::lock_guard lock(arena.needs_mutex_);
  const std::int64_t pages = arena.device_.whole_pages(bytes);
  if (pages == 0) return;
  const std::int64_t offset = base - arena.base();
  TORCH_CHECK(arena.is_free(offset, offset + pages), "lowtide: another program runs at a place of the arena");
  lie_at(arena, offset, pages);
}

Lease::Lease(Lease&& other) noexcept {
  *this = std::move(other);
}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  arena_ = std::exchange(other.arena_, nullptr);
  offset_ = other.offset_;
  annex_ = std::exchange(other.annex_, nullptr);
  annex_bytes_ = std::exchange(other.annex_bytes_, 0);
  serial_ = other.serial_;
  return *this;
}

std::byte* Lease::base() const {
  if (arena_ == nullptr) return nullptr;
  return annex_ != nullptr ? annex_ : arena_->base() + offset_;
}

bool Lease::resize(std::int64_t bytes) {
  if (arena_ == nullptr) return bytes == 0;
  const std::lock_guard lock(arena_->needs_mutex_);
  std::int64_t& end = arena_->leases_.at(offset_);
  const std::int64_t wanted = offset_ + arena_->device_.whole_pages(std::max<std::int64_t>(bytes, 1));
  const bool free = wanted <= end || arena_->is_free(end, wanted);
  if (annex_ == nullptr) {
    if (!free || !arena_->can_have(wanted)) return false;
    if (wanted > end) {
      arena_->take_turn();
      arena_->make_usable(wanted);
    }
  }
  if (!free) return bytes <= annex_bytes_;
  end = wanted;
  arena_->most_ = std::max(arena_->most_, end);
  return true;
}

void Lease::give_back() {
  if (arena_ == nullptr) return;
  const std::lock_guard lock(arena_->needs_mutex_);
  arena_->leases_.erase(offset_);
  if (annex_ != nullptr) {
    arena_->take_turn();
    note_freed(arena_->device_.where(), annex_, {annex_bytes_, 0, serial_});
    arena_->device_.remove_annex(std::exchange(annex_, nullptr));
    annex_bytes_ = 0;
  }
  arena_ = nullptr;
}

}  // namespace lowtide::torch_runtime
