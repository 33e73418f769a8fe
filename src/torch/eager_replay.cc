#include "eager_replay.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>

#include "allocator.h"

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
  if (running_.exchange(true)) return false;
  elsewhere_ = 0;
  paused_ = false;
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
  blocked_ = server_.escaped().empty() ? 0 : blocked_ + 1;
  if (blocked_ > kPatience) move_to_fresh_addresses();
  recording_ = record;
  events_.clear();
  ops_.clear();
  // Nothing is served where there is no memory, whoever was told so.
  const auto fits = [&](const auto& variant) { return variant->arena_bytes() <= usable_; };
  if (!std::all_of(variants.begin(), variants.end(), fits)) variants.clear();
  if (record && variants.empty()) {
    op_names_.watch();
  } else {
    op_names_.stop();
  }
  unplanned_ = 0;
  variants_ = std::move(variants);
  if (!variants_.empty()) server_.begin(variants_, suits);
}

EagerReplay::Outcome EagerReplay::finish() {
  Outcome outcome;
  outcome.unplanned = std::exchange(unplanned_, 0);
  if (variants_.empty()) return outcome;
  const std::vector<replay::Escaped> escaped = server_.end();
  outcome.tally = server_.tally();
  outcome.blocked = blocked_ > 0;
  outcome.escaped = static_cast<std::int64_t>(escaped.size());
  serve_outside(escaped);
  variants_.clear();
  return outcome;
}

// In all variants that have the line; which ones do is asked before any of them changes.
void EagerReplay::serve_outside(std::span<const replay::Escaped> escaped) {
  if (escaped.empty()) return;
  std::vector<std::vector<std::uint32_t>> lines(variants_.size());
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    for (const replay::Escaped& block : escaped) {
      if (variants_[v]->begins_like(*block.script, block.line + 1)) lines[v].push_back(block.line);
    }
  }
  for (std::size_t v = 0; v < variants_.size(); ++v) variants_[v]->move_outside(lines[v]);
}

void EagerReplay::give_up_recording() {
  recording_ = false;
  op_names_.stop();
  events_ = {};
  ops_ = {};
}

EagerReplay::Recording EagerReplay::take_recording() {
  Recording taken{replay::requests_in(events_), {}};
  for (const std::uint32_t op : ops_) taken.ops.push_back(op_names_.name(op));
  give_up_recording();
  return taken;
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
    left_behind_.push_back({base_ + block.offset, block.bytes, count_left_behind(block.bytes)});
  }
  close_pages_between_blocks(begin, end);
  if (left_behind_.empty()) {
    range_.close(0, end);
    base_ = range_.base();
  } else if (has_room) {
    base_ += usable_;
  }
  usable_ = 0;
  blocked_ = 0;
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
  count_left_behind_free(block.bytes, block.serial);
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
