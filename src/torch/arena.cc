#include "arena.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

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
  std::unique_lock alone(running_, std::defer_lock);
  if (device_.moves()) alone.lock();
  const std::lock_guard lock(needs_mutex_);
  const std::int64_t wanted = device_.whole_pages(bytes);
  make_usable(wanted);
  needs_.insert(wanted);
}

void Arena::make_usable(std::int64_t bytes) {
  if (bytes <= usable_) return;
  TORCH_CHECK(!device_.moves() || leases_.empty(), "lowtide: the arena on ", device_.where(),
              " cannot grow while a step runs in it");
  if (device_.moves()) take_turn();
  device_.resize(bytes);
  usable_ = bytes;
}

void Arena::remove_need(std::int64_t bytes, std::int64_t keep) {
  // A step of another program may be running in what stays; it cannot be running in what goes.
  const std::lock_guard lock(needs_mutex_);
  needs_.erase(needs_.find(device_.whole_pages(bytes)));
  const std::int64_t held = std::max(device_.whole_pages(keep), end_of_leases());
  const std::int64_t left = std::max(needs_.empty() ? 0 : *needs_.rbegin(), held);
  if (left < usable_) {
    if (device_.moves()) take_turn();
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

std::int64_t Arena::usable_bytes() {
  const std::lock_guard lock(needs_mutex_);
  return usable_;
}

Lease::Lease(Arena& arena, std::int64_t bytes) {
  const std::lock_guard lock(arena.needs_mutex_);
  arena.take_turn();
  const std::int64_t pages = arena.device_.whole_pages(bytes);
  if (pages == 0) return;
  offset_ = arena.lowest_free(pages);
  arena.make_usable(offset_ + pages);
  arena.leases_.emplace(offset_, offset_ + pages);
  arena_ = &arena;
}

Lease::Lease(Arena& arena, const std::byte* base, std::int64_t bytes) {
  const std::lock_guard lock(arena.needs_mutex_);
  const std::int64_t pages = arena.device_.whole_pages(bytes);
  if (pages == 0) return;
  offset_ = base - arena.base();
  TORCH_CHECK(arena.is_free(offset_, offset_ + pages), "lowtide: another program runs at a place of the arena");
  arena.make_usable(offset_ + pages);
  arena.leases_.emplace(offset_, offset_ + pages);
  arena_ = &arena;
}

Lease::Lease(Lease&& other) noexcept : arena_(std::exchange(other.arena_, nullptr)), offset_(other.offset_) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  arena_ = std::exchange(other.arena_, nullptr);
  offset_ = other.offset_;
  return *this;
}

std::byte* Lease::base() const {
  return arena_ == nullptr ? nullptr : arena_->base() + offset_;
}

bool Lease::resize(std::int64_t bytes) {
  if (arena_ == nullptr) return bytes == 0;
  const std::lock_guard lock(arena_->needs_mutex_);
  std::int64_t& end = arena_->leases_.at(offset_);
  const std::int64_t wanted = offset_ + arena_->device_.whole_pages(std::max<std::int64_t>(bytes, 1));
  if (wanted > end && !arena_->is_free(end, wanted)) return false;
  if (wanted > end) {
    arena_->take_turn();
    arena_->make_usable(wanted);
  }
  end = wanted;
  return true;
}

void Lease::give_back() {
  if (arena_ == nullptr) return;
  const std::lock_guard lock(arena_->needs_mutex_);
  arena_->leases_.erase(offset_);
  arena_ = nullptr;
}

}  // namespace lowtide::torch_runtime
