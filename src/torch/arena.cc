#include "arena.h"

#include <algorithm>

namespace lowtide::torch_runtime {

Arena& Arena::process() {
  static Arena* arena = new Arena;  // never destroyed: tensors may outlive every static object
  return *arena;
}

void Arena::add_need(std::int64_t bytes) {
  const std::lock_guard lock(needs_mutex_);
  const std::int64_t wanted = AddressRange::whole_pages(bytes);
  if (wanted > usable_) {
    range_.open(usable_, wanted);
    usable_ = wanted;
  }
  needs_.insert(wanted);
}

void Arena::remove_need(std::int64_t bytes, std::int64_t keep) {
  // A step of another program may be running in what stays; it cannot be running in what goes.
  const std::lock_guard lock(needs_mutex_);
  needs_.erase(needs_.find(AddressRange::whole_pages(bytes)));
  const std::int64_t left = std::max(needs_.empty() ? 0 : *needs_.rbegin(), AddressRange::whole_pages(keep));
  if (left < usable_) {
    range_.close(left, usable_);
    usable_ = left;
  }
}

void Arena::empty_above(std::int64_t keep) {
  const std::lock_guard lock(needs_mutex_);
  range_.empty(AddressRange::whole_pages(keep), usable_);
}

std::int64_t Arena::usable_bytes() {
  const std::lock_guard lock(needs_mutex_);
  return usable_;
}

}  // namespace lowtide::torch_runtime
