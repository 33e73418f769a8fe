#include "allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "arena.h"

namespace lowtide::torch_runtime {
namespace {

// In front of every ordinary block; as long as the alignment PyTorch promises.
struct alignas(64) Header {
  std::int64_t bytes;
  std::uint64_t serial;
  std::uint64_t unplanned_in;  // the step whose plan did not foresee this block, or 0
};
static_assert(sizeof(Header) == 64);

std::atomic<std::uint64_t> next_serial{1};
std::atomic<std::uint64_t> next_step{1};
std::atomic<int> open_meters{0};
std::mutex meters_mutex;
std::vector<Meter*>& meters() {
  static auto* list = new std::vector<Meter*>;
  return *list;
}

std::atomic<std::size_t> escaped_count{0};
std::mutex escaped_mutex;
std::vector<std::pair<void*, std::int64_t>>& escaped() {
  static auto* list = new std::vector<std::pair<void*, std::int64_t>>;
  return *list;
}

thread_local std::vector<RecordedEvent>* recording = nullptr;
thread_local Keeping* keeping = nullptr;
thread_local Replay* replaying = nullptr;

void count_allocation(std::int64_t bytes) {
  if (open_meters.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(meters_mutex);
  for (Meter* meter : meters()) {
    meter->live_bytes += bytes;
    meter->allocations += 1;
    meter->peak_bytes = std::max(meter->peak_bytes, meter->live_bytes + meter->arena_bytes);
  }
}

void count_free(const Header& header) {
  if (open_meters.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(meters_mutex);
  for (Meter* meter : meters()) {
    if (header.serial >= meter->opened_at) meter->live_bytes -= header.bytes;
  }
}

void count_served(std::int64_t end) {
  if (open_meters.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(meters_mutex);
  for (Meter* meter : meters()) {
    meter->arena_bytes = std::max(meter->arena_bytes, end);
    meter->peak_bytes = std::max(meter->peak_bytes, meter->live_bytes + meter->arena_bytes);
  }
}

}  // namespace

// A kept block of this size, or null.
void* take_kept(std::size_t bytes) {
  if (keeping == nullptr) return nullptr;
  auto& blocks = keeping->blocks_;
  const auto found = std::find_if(blocks.begin(), blocks.end(), [&](void* block) {
    return static_cast<Header*>(block)->bytes == static_cast<std::int64_t>(bytes);
  });
  if (found == blocks.end()) return nullptr;
  void* block = *found;
  blocks.erase(found);
  return block;
}

// Whether a block that is freed was kept.
bool keep(void* block) {
  if (keeping == nullptr) return false;
  keeping->blocks_.push_back(block);
  return true;
}

namespace {

void* allocate_ordinary(std::size_t bytes, std::uint64_t unplanned_in) {
  void* kept = take_kept(bytes);
  auto* header = static_cast<Header*>(kept != nullptr ? kept : c10::alloc_cpu(bytes + sizeof(Header)));
  const auto size = static_cast<std::int64_t>(bytes);
  *header = {size, next_serial.fetch_add(1, std::memory_order_relaxed), unplanned_in};
  count_allocation(size);
  c10::profiledCPUMemoryReporter().New(header + 1, bytes);
  return header + 1;
}

bool any_overlap(const std::vector<std::pair<void*, std::int64_t>>& blocks, const std::byte* begin,
                 std::int64_t bytes) {
  return std::any_of(blocks.begin(), blocks.end(), [&](const auto& block) {
    const auto* other = static_cast<const std::byte*>(block.first);
    return begin < other + block.second && other < begin + bytes;
  });
}

}  // namespace

class ReplayingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    void* address = nullptr;
    bool planned_outside = false;
    if (replaying != nullptr) address = replaying->serve(bytes, &planned_outside);
    if (address == nullptr) {
      const bool unplanned = replaying != nullptr && !planned_outside;
      if (unplanned) replaying->count_unplanned(static_cast<std::int64_t>(bytes));
      address = allocate_ordinary(bytes, unplanned ? replaying->step_ : 0);
    }
    if (recording != nullptr) recording->push_back({true, static_cast<std::int64_t>(bytes), address});
    return {address, address, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

void install_allocator() {
  static ReplayingAllocator* allocator = [] {
    auto* made = new ReplayingAllocator;
    c10::SetCPUAllocator(made, 255);  // the highest priority: nothing installed later replaces it by accident
    return made;
  }();
  (void)allocator;
}

void open_meter(Meter* meter) {
  const std::lock_guard lock(meters_mutex);
  *meter = Meter{};
  meter->opened_at = next_serial.load(std::memory_order_relaxed);
  meters().push_back(meter);
  open_meters.fetch_add(1);
}

void close_meter(Meter* meter) {
  const std::lock_guard lock(meters_mutex);
  if (std::erase(meters(), meter) > 0) open_meters.fetch_sub(1);
}

Meter read_meter(const Meter* meter) {
  const std::lock_guard lock(meters_mutex);
  return *meter;
}

void arena_shrunk_to(std::int64_t bytes) {
  const std::lock_guard lock(meters_mutex);
  for (Meter* meter : meters()) meter->arena_bytes = std::min(meter->arena_bytes, bytes);
}

void start_recording(std::vector<RecordedEvent>* events) {
  recording = events;
}
void stop_recording() {
  recording = nullptr;
}

Keeping::Keeping() {
  keeping = this;
}
Keeping::~Keeping() {
  keeping = nullptr;
  for (void* block : blocks_) c10::free_cpu(block);
}

Replay::Replay(ReplayStats* stats, std::int64_t margin)
    : stats_(stats), margin_(margin), step_(next_step.fetch_add(1)) {
  replaying = this;
}
Replay::~Replay() {
  replaying = nullptr;
}

void Replay::begin_op(const Request* requests, std::size_t count) {
  requests_ = requests;
  count_ = count;
  next_ = 0;
  missed_ = false;
}

void Replay::count_unplanned(std::int64_t bytes) {
  stats_->unplanned_live += bytes;
  stats_->unplanned_peak = std::max(stats_->unplanned_peak, stats_->unplanned_live);
}

void* Replay::serve(std::size_t bytes, bool* planned_outside) {
  const auto size = static_cast<std::int64_t>(bytes);
  const Request* request = next_ < count_ ? &requests_[next_++] : nullptr;
  if (request != nullptr && size <= request->bytes) {
    if (request->offset == Request::kOutside) {
      *planned_outside = true;
      return nullptr;
    }
    std::byte* address = Arena::process().base() + request->offset;
    if (!overlaps_held(address, size) && !overlaps_escaped(address, size)) {
      const std::int64_t end = request->offset + size + margin_;
      if (end > stats_->highest_end) stats_->highest_end = end;
      count_served(end);
      held_.emplace_back(address, size);
      return address;
    }
  }
  stats_->misses += 1;
  missed_ = true;
  return nullptr;
}

// An operator whose requests depend on its data may make another sequence of them than it did for its profile.
bool Replay::overlaps_held(const std::byte* begin, std::int64_t bytes) const {
  return any_overlap(held_, begin, bytes);
}

Replay::OpOutcome Replay::end_op() {
  const std::size_t kept = held_.size();
  for (const auto& [address, bytes] : held_) mark_escaped(address, bytes);
  held_.clear();
  requests_ = nullptr;
  count_ = next_ = 0;
  return {kept, missed_};
}

void mark_escaped(void* address, std::int64_t bytes) {
  const std::lock_guard lock(escaped_mutex);
  escaped().emplace_back(address, bytes);
  escaped_count.fetch_add(1, std::memory_order_release);
}

std::vector<std::pair<std::int64_t, std::int64_t>> escaped_stretches() {
  const std::lock_guard lock(escaped_mutex);
  std::vector<std::pair<std::int64_t, std::int64_t>> stretches;
  for (const auto& [address, bytes] : escaped()) {
    stretches.emplace_back(static_cast<const std::byte*>(address) - Arena::process().base(), bytes);
  }
  return stretches;
}

bool overlaps_escaped(const std::byte* begin, std::int64_t bytes) {
  if (escaped_count.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(escaped_mutex);
  return any_overlap(escaped(), begin, bytes);
}

void release_in_arena(void* address) {
  if (replaying != nullptr) {
    auto& held = replaying->held_;
    const auto found = std::find_if(held.rbegin(), held.rend(), [&](const auto& b) { return b.first == address; });
    if (found != held.rend()) {
      held.erase(std::next(found).base());
      return;
    }
  }
  if (escaped_count.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(escaped_mutex);
  auto& list = escaped();
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& b) { return b.first == address; });
  if (found == list.end()) return;
  list.erase(found);
  escaped_count.fetch_sub(1, std::memory_order_release);
}

void release(void* address) {
  if (address == nullptr) return;
  if (Arena::process().contains(address)) {
    release_in_arena(address);  // arena memory is never recorded: profiles are taken outside of steps
    return;
  }
  Header* header = static_cast<Header*>(address) - 1;
  if (recording != nullptr) recording->push_back({false, header->bytes, address});
  if (replaying != nullptr && header->unplanned_in == replaying->step_) replaying->count_unplanned(-header->bytes);
  count_free(*header);
  c10::profiledCPUMemoryReporter().Delete(address);
  if (!keep(header)) c10::free_cpu(header);
}

}  // namespace lowtide::torch_runtime
