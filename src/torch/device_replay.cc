#include "device_replay.h"

#include <ATen/ThreadLocalPythonObjects.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <string>
#include <utility>

#include "allocator.h"

namespace lowtide::torch_runtime {
namespace {

using at::impl::ThreadLocalPythonObjects;  // what PyTorch takes along to the threads of its autograd

const std::string kToken = "lowtide.replay";

c10::Stream current_stream(c10::Device where) {
  return c10::impl::VirtualGuardImpl(where.type()).getStream(where);
}

}  // namespace

std::atomic<DeviceReplay*> DeviceReplay::running_{nullptr};
std::atomic<int> DeviceReplay::open_pools_{0};

DeviceReplay& DeviceReplay::process() {
  static DeviceReplay* replay = new DeviceReplay;  // never destroyed: tensors may outlive every static object
  return *replay;
}

DeviceReplay::DeviceReplay() {
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
        running_ = nullptr;
      });
}

void DeviceReplay::start(c10::Device where) {
  TORCH_CHECK(running_.load() == nullptr, "lowtide: another replay is running");
  device_ = find_device(where);
  TORCH_CHECK(device_ != nullptr, "lowtide: no memory is planned on ", where);
  where_ = where;
  stream_ = current_stream(where);
  token_ = std::make_shared<c10::SafePyObject>(nullptr, nullptr);
  ThreadLocalPythonObjects::set(kToken, token_);
  start_anew();
  other_streams_ = 0;
  running_ = this;
}

void DeviceReplay::stop() {
  finish();
  running_ = nullptr;
  ThreadLocalPythonObjects::erase(kToken);
  const std::lock_guard lock(mutex_);
  give_up_recording();
  release_deferred();
  leave_behind();
}

void DeviceReplay::set_paused(bool paused) {
  const std::lock_guard lock(mutex_);
  EagerIterations::set_paused(paused);
}

void DeviceReplay::set_arena(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::int64_t before = std::exchange(wanted_, device_->whole_pages(bytes));
  if (wanted_ == before || !server_.escaped().empty()) return;
  free_arena();
  device_->empty_cache();  // it has been kept for smaller requests
  try {
    allocate(wanted_);
  } catch (...) {
    wanted_ = before;
    throw;
  }
}

void DeviceReplay::begin(Scripts variants, replay::Suits suits, bool record) {
  const std::lock_guard lock(mutex_);
  release_deferred();
  if (count_blocked() == 0) {
    try {
      resize(variants.empty() ? 0 : wanted_);
    } catch (const c10::Error& error) {
      TORCH_WARN("lowtide.replay has no arena, and an iteration uses ordinary memory: ",
                 error.what_without_backtrace());
    }
  }
  follow(std::move(variants), suits, record, usable_);
}

EagerIterations::Outcome DeviceReplay::finish() {
  const std::lock_guard lock(mutex_);
  return EagerIterations::finish();
}

EagerIterations::Recording DeviceReplay::take_recording() {
  const std::lock_guard lock(mutex_);
  Recording taken = EagerIterations::take_recording();
  taken.alignment = device_->alignment();
  return taken;
}

std::size_t DeviceReplay::blocks_left_behind() {
  const std::lock_guard lock(mutex_);
  std::size_t blocks = 0;
  for (const Block& block : left_) blocks += block.held.size();
  return blocks;
}

// -- requests ---------------------------------------------------------------------------------------------------------

bool DeviceReplay::is_owners_thread() const {
  return ThreadLocalPythonObjects::contains(kToken) && ThreadLocalPythonObjects::get(kToken) == token_;
}

bool DeviceReplay::follows_request() {
  if (!is_owners_thread()) {
    count_elsewhere();
    return false;
  }
  if (open_pools_.load(std::memory_order_relaxed) > 0 || current_stream(where_) != *stream_) {
    other_streams_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  return true;
}

DeviceReplay::Answer DeviceReplay::serve(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::int64_t size = device_->whole_pages(bytes);
  const std::int64_t offset = place(size);
  if (offset < 0) return {.records = is_recording()};
  std::byte* address = arena_->base() + offset;
  wait_for_uses(*stream_, address, size);
  if (is_recording()) note_request(address, size);
  return {address, highest_end(), false};
}

void DeviceReplay::note_ordinary(const void* address, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (is_recording()) note_request(address, device_->whole_pages(bytes));
}

void DeviceReplay::note_freed(const void* address) {
  const std::lock_guard lock(mutex_);
  if (is_recording()) note_release(address);
}

// A block of the arena's memory goes back to PyTorch without the mutex, as that may want to look at Python.
void DeviceReplay::release(std::byte* address) {
  std::optional<Block> gone;
  const std::lock_guard lock(mutex_);
  if (is_recording()) note_release(address);
  if (open_pools_.load(std::memory_order_relaxed) > 0 && named_.contains(address)) {
    deferred_.push_back(address);  // a stream that is captured would take an event for its graph
  } else {
    gone = release_now(address);
  }
}

std::optional<DeviceReplay::Block> DeviceReplay::release_now(std::byte* address) {
  if (!arena_ || !arena_->contains(address)) return release_left_behind(address);
  const std::int64_t offset = address - arena_->base();
  note_end_of_uses(address, server_.bytes_at(offset));
  server_.release(offset);
  return std::nullopt;
}

bool DeviceReplay::note_use(const void* address, const c10::Stream& stream) {
  const std::lock_guard lock(mutex_);
  const auto has = [&](const Block& block) { return block.contains(address); };
  const auto left = std::find_if(left_.begin(), left_.end(), has);
  const Block* block = arena_ && has(*arena_) ? &*arena_ : left != left_.end() ? &*left : nullptr;
  if (block == nullptr) return false;
  if (stream != block->stream) named_[address].push_back(stream);
  return true;
}

void release_replayed(void* address) {
  DeviceReplay::process().release(static_cast<std::byte*>(address));
}

// -- other streams ----------------------------------------------------------------------------------------------------

void DeviceReplay::note_end_of_uses(std::byte* address, std::int64_t bytes) {
  const auto named = named_.extract(address);
  if (named.empty()) return;
  for (const c10::Stream& stream : named.mapped()) {
    uses_.push_back({address, bytes, c10::Event(where_.type())});
    uses_.back().done.record(stream);
  }
}

void DeviceReplay::wait_for_uses(const c10::Stream& stream, const std::byte* begin, std::int64_t bytes) {
  std::erase_if(uses_, [&](const Use& use) {
    if (use.begin >= begin + bytes || begin >= use.begin + use.bytes) return false;
    if (waits_) use.done.block(stream);
    return true;
  });
}

void DeviceReplay::release_deferred() {
  if (open_pools_.load(std::memory_order_relaxed) > 0) return;
  for (std::byte* address : std::exchange(deferred_, {})) release_now(address);
}

// -- the arena --------------------------------------------------------------------------------------------------------

void DeviceReplay::resize(std::int64_t bytes) {
  if (bytes == usable_) return;
  free_arena();
  allocate(bytes);
}

void DeviceReplay::allocate(std::int64_t bytes) {
  if (bytes == 0) return;
  const Uncounted ours;
  const c10::StreamGuard here(*stream_);
  arena_ = Block{at::empty({bytes}, at::TensorOptions(where_).dtype(at::kByte)), *stream_};
  usable_ = bytes;
}

void DeviceReplay::free_arena() {
  if (!arena_) return;
  wait_for_uses(arena_->stream, arena_->base(), usable_);
  arena_.reset();
  usable_ = 0;
  arena_shrunk_to(where_, ArenaKind::replayed, 0);
}

// The replay is over: the block stays for as long as a part of it is alive.
void DeviceReplay::leave_behind() {
  wanted_ = 0;
  const std::vector<replay::Escaped> escaped = server_.forget_escaped();
  if (escaped.empty()) return free_arena();
  for (const replay::Escaped& one : escaped) {
    arena_->held.push_back({arena_->base() + one.offset, one.bytes, count_left_behind(where_, one.bytes)});
  }
  left_.push_back(*std::exchange(arena_, std::nullopt));
  usable_ = 0;
  arena_shrunk_to(where_, ArenaKind::replayed, 0);
}

// Gives the block of memory if that was the last of it.
std::optional<DeviceReplay::Block> DeviceReplay::release_left_behind(std::byte* address) {
  const auto block = std::find_if(left_.begin(), left_.end(), [&](const Block& one) { return one.contains(address); });
  if (block == left_.end()) return std::nullopt;
  const auto held = std::find_if(block->held.begin(), block->held.end(),
                                 [&](const LeftBehind& one) { return one.address == address; });
  if (held == block->held.end()) return std::nullopt;
  note_end_of_uses(address, held->bytes);
  count_left_behind_free(block->memory.device(), held->bytes, held->serial);
  block->held.erase(held);
  if (!block->held.empty()) return std::nullopt;
  wait_for_uses(block->stream, block->base(), static_cast<std::int64_t>(block->memory.nbytes()));
  Block gone = std::move(*block);
  left_.erase(block);
  return gone;
}

}  // namespace lowtide::torch_runtime
