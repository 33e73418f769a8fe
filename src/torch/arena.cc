#include "arena.h"

#include <algorithm>
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
  if (wanted > usable_) {
    if (device_.moves()) take_turn();
    device_.resize(wanted);
    usable_ = wanted;
  }
  needs_.insert(wanted);
}

void Arena::remove_need(std::int64_t bytes, std::int64_t keep) {
  // A step of another program may be running in what stays; it cannot be running in what goes.
  const std::lock_guard lock(needs_mutex_);
  needs_.erase(needs_.find(device_.whole_pages(bytes)));
  const std::int64_t left = std::max(needs_.empty() ? 0 : *needs_.rbegin(), device_.whole_pages(keep));
  if (left < usable_) {
    if (device_.moves()) take_turn();
    device_.resize(left);
    usable_ = left;
  }
}

void Arena::empty_above(std::int64_t keep) {
  const std::lock_guard lock(needs_mutex_);
  device_.empty_above(device_.whole_pages(keep));
}

std::int64_t Arena::usable_bytes() {
  const std::lock_guard lock(needs_mutex_);
  return usable_;
}

}  // namespace lowtide::torch_runtime
