#include "tier/faults.h"

#include <utility>

namespace lowtide::tier {

Faults::Faults(std::map<std::uint64_t, Fault> faults) : faults_(std::move(faults)) {}

Fault Faults::of_next_transfer() {
  const std::lock_guard lock(mutex_);
  const auto found = faults_.find(issued_++);
  return found == faults_.end() ? Fault::none : found->second;
}

void Faults::wait_for_release() {
  std::unique_lock lock(mutex_);
  released_changed_.wait(lock, [this] { return released_; });
}

void Faults::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  released_changed_.notify_all();
}

}  // namespace lowtide::tier
