#include "eager_replay.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "allocator.h"
#include "device_replay.h"

namespace lowtide::torch_runtime {
namespace {

constexpr int kPatience = 8;  // iterations that wait for escaped blocks to be released

}  // namespace

std::atomic<EagerReplay*> EagerReplay::made_{nullptr};

EagerReplay& EagerReplay::process() {
  static EagerReplay* replay = [] {
    auto* made = new EagerReplay;  // never destroyed: tensors may outlive every static object
    made_.store(made, std::memory_order_release);
    return made;
  }();
  return *replay;
}

EagerReplay::EagerReplay() : base_(range_.base()) {
  // A worker process of a loader is forked in the middle of an iteration: it has tensors of the arena, as copies, and
  // makes ordinary requests.
  pthread_atfork(
      [] {
        process().mutex_.lock();
        process().server_.mutex().lock();
      },
      [] {
        process().server_.mutex().unlock();
        process().mutex_.unlock();
      },
      [] {
        process().server_.mutex().unlock();
        process().mutex_.unlock();
        process().running_ = false;
        set_eager_replay(nullptr);
      });
}

bool EagerReplay::start() {
  if (DeviceReplay::is_running() || running_.exchange(true)) return false;
  start_anew();
  set_eager_replay(this);
  return true;
}

void EagerReplay::stop() {
  finish();
  give_up_recording();
  spill_ = nullptr;
  move_on();
  set_eager_replay(nullptr);
  running_ = false;
}

void EagerReplay::spill_to(const std::string& folder) {
  spill_ = folder.empty() ? nullptr : std::make_unique<SpillFile>(folder);
}

void EagerReplay::set_arena(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::int64_t begin = base_ - range_.base();
  const std::int64_t wanted = AddressRange::whole_pages(bytes);
  if (wanted > usable_) {
    range_.open(begin + usable_, begin + wanted);
  } else if (!server_.escaped().empty()) {
    return;  // one of them may lie in what would go
  } else {
    range_.close(begin + wanted, begin + usable_);
    arena_shrunk_to(c10::Device(c10::kCPU), ArenaKind::replayed, bytes);
  }
  usable_ = wanted;
}

void EagerReplay::begin(Scripts variants, replay::Suits suits, bool record) {
  if (count_blocked() > kPatience) move_to_fresh_addresses();
  follow(std::move(variants), suits, record, usable_);
}

std::size_t EagerReplay::blocks_left_behind() {
  const std::lock_guard lock(mutex_);
  return left_behind_.size();
}

void EagerReplay::release(std::byte* address) {
  if (is_current(address)) {
    server_.release(address - base_);
  } else {
    const std::lock_guard lock(mutex_);
    release_left_behind(address);
  }
}

void EagerReplay::release_from_elsewhere(std::byte* address) {
  const std::lock_guard lock(mutex_);
  if (is_current(address)) {
    server_.release_from_elsewhere(address - base_);
  } else {
    release_left_behind(address);
  }
}

// To addresses behind all that were ever served; where there are none left, the range is as good as full.
void EagerReplay::move_on() {
  const std::lock_guard lock(mutex_);
  const std::int64_t begin = base_ - range_.base();
  const std::int64_t end = begin + usable_;
  const bool has_room = end + usable_ <= AddressRange::most_bytes();
  if (!has_room && !server_.escaped().empty()) return;
  for (const replay::Escaped& block : server_.forget_escaped()) {
    left_behind_.push_back({base_ + block.offset, block.bytes, count_left_behind(c10::Device(c10::kCPU), block.bytes)});
  }
  close_pages_between_blocks(begin, end);
  if (left_behind_.empty()) {
    range_.close(0, end);
    base_ = range_.base();
  } else if (has_room) {
    base_ += usable_;
  }
  usable_ = 0;
  forget_blocked();
  arena_shrunk_to(c10::Device(c10::kCPU), ArenaKind::replayed, 0);
}

void EagerReplay::move_to_fresh_addresses() {
  const std::int64_t bytes = usable_;
  move_on();
  try {
    set_arena(bytes);
  } catch (const c10::Error&) {  // the system refuses: iterations use ordinary memory until there is an arena again
  }
}

void EagerReplay::release_left_behind(std::byte* address) {
  const auto found = std::find_if(left_behind_.begin(), left_behind_.end(),
                                  [&](const LeftBehind& block) { return block.address == address; });
  if (found == left_behind_.end()) return;
  const LeftBehind block = *found;
  left_behind_.erase(found);
  count_left_behind_free(c10::Device(c10::kCPU), block.bytes, block.serial);
  const std::int64_t page = AddressRange::whole_pages(1);
  const std::int64_t begin = block.address - range_.base();
  close_pages_between_blocks(begin / page * page, AddressRange::whole_pages(begin + block.bytes));
}

// Closes the pages in [begin, end) that no block left behind has a part of.
void EagerReplay::close_pages_between_blocks(std::int64_t begin, std::int64_t end) {
  const std::int64_t page = AddressRange::whole_pages(1);
  std::vector<std::pair<std::int64_t, std::int64_t>> kept;
  for (const LeftBehind& block : left_behind_) {
    const std::int64_t first = block.address - range_.base();
    kept.emplace_back(first / page * page, AddressRange::whole_pages(first + block.bytes));
  }
  std::sort(kept.begin(), kept.end());
  for (const auto& [first, last] : kept) {
    if (last <= begin || first >= end) continue;
    range_.close(begin, std::min(first, end));
    begin = std::max(begin, last);
  }
  range_.close(begin, end);
}

}  // namespace lowtide::torch_runtime
