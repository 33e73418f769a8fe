#include "allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "arena.h"
#include "device_replay.h"
#include "eager_replay.h"

namespace lowtide::torch_runtime {
namespace {

const c10::Device kCpu(c10::kCPU);

// In front of every ordinary block; as long as the alignment PyTorch promises.
struct alignas(64) Header {
  std::int64_t bytes;
  std::uint64_t serial;
  std::uint64_t unplanned_in;  // the step whose plan did not foresee this block, or 0
  bool spilled;                // to a file, see spill_file.h
};
static_assert(sizeof(Header) == 64);

std::atomic<std::uint64_t> next_serial{1};
std::atomic<std::uint64_t> next_step{1};
std::atomic<int> open_meters{0};
std::atomic<int> limited_meters{0};
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

// What is asked of the allocator for one thread. Together, because finding a thread's own is what takes time.
struct PerThread {
  std::vector<RecordedEvent>* recording = nullptr;
  Keeping* keeping = nullptr;
  Replay* replaying = nullptr;
  EagerReplay* eager = nullptr;
  bool uncounted = false;

  Replay* replaying_on(c10::Device where) const;

  // Not while an operator is profiled, or a compiled step runs, in the middle of an eager iteration.
  bool is_eager() const { return eager != nullptr && is_free(); }
  bool is_free() const { return replaying == nullptr && keeping == nullptr && recording == nullptr; }
};
thread_local PerThread this_thread;

Replay* PerThread::replaying_on(c10::Device where) const {
  return replaying != nullptr && replaying->device() == where ? replaying : nullptr;
}

void lock_lists() {
  meters_mutex.lock();
  escaped_mutex.lock();
}
void unlock_lists() {
  escaped_mutex.unlock();
  meters_mutex.unlock();
}

void check_limits(std::int64_t bytes) {
  if (limited_meters.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(meters_mutex);
  for (const Meter* meter : meters()) {
    if (!meter->where.is_cpu()) continue;
    const std::int64_t there = meter->live_bytes + meter->arena_bytes();
    TORCH_CHECK_WITH(OutOfMemoryError, there <= meter->limit_bytes - bytes, "Lowtide: ", bytes, " bytes more than the ",
                     there, " that are there would exceed the limit of ", meter->limit_bytes);
  }
}

void count_allocation(c10::Device where, std::int64_t bytes) {
  if (open_meters.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(meters_mutex);
  for (Meter* meter : meters()) {
    if (meter->where != where) continue;
    meter->live_bytes += bytes;
    meter->allocations += 1;
    meter->peak_bytes = std::max(meter->peak_bytes, meter->live_bytes + meter->arena_bytes());
  }
}

void count_free(c10::Device where, std::int64_t bytes, std::uint64_t serial) {
  if (open_meters.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(meters_mutex);
  for (Meter* meter : meters()) {
    if (meter->where == where && serial >= meter->opened_at) meter->live_bytes -= bytes;
  }
}

void count_served(c10::Device where, ArenaKind kind, std::int64_t end) {
  if (open_meters.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(meters_mutex);
  for (Meter* meter : meters()) {
    if (meter->where != where) continue;
    std::int64_t& arena = meter->arenas[static_cast<std::size_t>(kind)];
    arena = std::max(arena, end);
    meter->peak_bytes = std::max(meter->peak_bytes, meter->live_bytes + meter->arena_bytes());
  }
}

}  // namespace

// A kept block of this size, or null.
void* take_kept(std::size_t bytes) {
  Keeping* keeping = this_thread.keeping;
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
  if (this_thread.keeping == nullptr) return false;
  this_thread.keeping->blocks_.push_back(block);
  return true;
}

namespace {

void* allocate_ordinary(std::size_t bytes, std::uint64_t unplanned_in, SpillFile* spill = nullptr) {
  const auto size = static_cast<std::int64_t>(bytes);
  check_limits(size);
  void* block = take_kept(bytes);
  if (block == nullptr) {
    const std::size_t all = bytes + sizeof(Header);
    block = spill != nullptr ? spill->allocate(all) : c10::alloc_cpu(all);
  }
  auto* header = static_cast<Header*>(block);
  *header = {size, next_serial.fetch_add(1, std::memory_order_relaxed), unplanned_in, spill != nullptr};
  count_allocation(kCpu, size);
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
    if (bytes == 0) return {nullptr, nullptr, &release, kCpu};
    const PerThread& thread = this_thread;
    void* address = thread.is_eager() ? allocate_eagerly(*thread.eager, bytes) : allocate_planned(thread, bytes);
    return {address, address, &release, kCpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }

 private:
  static void* allocate_eagerly(EagerReplay& eager, std::size_t bytes) {
    const auto size = static_cast<std::int64_t>(bytes);
    void* address = eager.serve(size);
    if (address != nullptr) {
      count_served(kCpu, ArenaKind::replayed, eager.highest_end());
    } else {
      address = allocate_ordinary(bytes, 0, eager.spill_for(bytes));
    }
    if (eager.is_recording()) eager.note_request(address, size);
    return address;
  }

  static void* allocate_planned(const PerThread& thread, std::size_t bytes) {
    void* address = nullptr;
    bool planned_outside = false;
    Replay* replaying = thread.replaying_on(kCpu);
    if (replaying != nullptr) address = replaying->serve(bytes, &planned_outside);
    if (address == nullptr) {
      const bool unplanned = replaying != nullptr && !planned_outside;
      if (unplanned) replaying->count_unplanned(static_cast<std::int64_t>(bytes));
      address = allocate_ordinary(bytes, unplanned ? replaying->step_ : 0);
      EagerReplay* eager = EagerReplay::if_made();
      if (eager != nullptr && eager->is_running() && thread.eager == nullptr) eager->count_elsewhere();
    }
    if (thread.recording != nullptr) {
      thread.recording->push_back({kCpu, true, static_cast<std::int64_t>(bytes), address});
    }
    return address;
  }
};

void install_allocator() {
  static ReplayingAllocator* allocator = [] {
    auto* made = new ReplayingAllocator;
    c10::SetCPUAllocator(made, 255);  // the highest priority: nothing installed later replaces it by accident
    // Another thread may be counting, without the GIL, when a process is forked: the child finds the locks free.
    pthread_atfork(&lock_lists, &unlock_lists, &unlock_lists);
    return made;
  }();
  (void)allocator;
}

void open_meter(Meter* meter, c10::Device where) {
  const std::lock_guard lock(meters_mutex);
  *meter = Meter{.where = where};
  meter->opened_at = next_serial.load(std::memory_order_relaxed);
  meters().push_back(meter);
  open_meters.fetch_add(1);
}

void close_meter(Meter* meter) {
  const std::lock_guard lock(meters_mutex);
  if (std::erase(meters(), meter) == 0) return;
  open_meters.fetch_sub(1);
  if (meter->limit_bytes != Meter::kNoLimit) limited_meters.fetch_sub(1);
}

Meter read_meter(const Meter* meter) {
  const std::lock_guard lock(meters_mutex);
  return *meter;
}

Meter mark_meter(Meter* meter) {
  const std::lock_guard lock(meters_mutex);
  const Meter read = *meter;
  meter->peak_bytes = meter->live_bytes + meter->arena_bytes();
  return read;
}

void limit_meter(Meter* meter, std::int64_t bytes) {
  const std::lock_guard lock(meters_mutex);
  limited_meters.fetch_add((bytes != Meter::kNoLimit) - (meter->limit_bytes != Meter::kNoLimit));
  meter->limit_bytes = bytes;
}

void arena_shrunk_to(c10::Device where, ArenaKind kind, std::int64_t bytes) {
  const std::lock_guard lock(meters_mutex);
  for (Meter* meter : meters()) {
    if (meter->where != where) continue;
    std::int64_t& arena = meter->arenas[static_cast<std::size_t>(kind)];
    arena = std::min(arena, bytes);
  }
}

void count_left_behind_free(c10::Device where, std::int64_t bytes, std::uint64_t serial) {
  count_free(where, bytes, serial);
}

Uncounted::Uncounted() {
  this_thread.uncounted = true;
}
Uncounted::~Uncounted() {
  this_thread.uncounted = false;
}

std::uint64_t count_left_behind(c10::Device where, std::int64_t bytes) {
  const std::lock_guard lock(meters_mutex);
  for (Meter* meter : meters()) {
    if (meter->where == where) meter->live_bytes += bytes;
  }
  return next_serial.fetch_add(1, std::memory_order_relaxed);
}

void start_recording(std::vector<RecordedEvent>* events) {
  this_thread.recording = events;
}
void stop_recording() {
  this_thread.recording = nullptr;
}

Keeping::Keeping() {
  this_thread.keeping = this;
}
Keeping::~Keeping() {
  this_thread.keeping = nullptr;
  for (void* block : blocks_) c10::free_cpu(block);
}

Replay::Replay(Arena& arena, std::byte* base, ReplayStats* stats, std::int64_t margin, bool in_annex)
    : arena_(arena),
      base_(base),
      around_(this_thread.replaying),
      stats_(stats),
      margin_(margin),
      in_annex_(in_annex),
      step_(next_step.fetch_add(1)) {
  this_thread.replaying = this;
}
Replay::~Replay() {
  this_thread.replaying = around_;
}

c10::Device Replay::device() const {
  return arena_.device().where();
}

void Replay::begin_op(const Request* requests, std::size_t count) {
  requests_ = requests;
  count_ = count;
  next_ = 0;
  missed_ = departed_ = false;
}

void Replay::count_unplanned(std::int64_t bytes) {
  stats_->unplanned_live += bytes;
  stats_->unplanned_peak = std::max(stats_->unplanned_peak, stats_->unplanned_live);
}

void* Replay::serve(std::size_t bytes, bool* planned_outside) {
  const auto size = static_cast<std::int64_t>(bytes);
  if (!departed_ && next_ < count_ && requests_[next_].bytes == size) {
    const Request& request = requests_[next_++];
    if (request.offset == Request::kOutside) {
      *planned_outside = true;
      return nullptr;
    }
    std::byte* address = base_ + request.offset;
    departed_ = overlaps_held(address, size);
    if (!departed_ && !overlaps_escaped(address, size)) {
      const std::int64_t end = request.offset + size + margin_;
      if (end > stats_->highest_end) stats_->highest_end = end;
      if (!in_annex_) count_served(device(), ArenaKind::planned, base_ - arena_.base() + end);
      held_.emplace_back(address, size);
      return address;
    }
  } else {
    departed_ = true;
  }
  stats_->misses += 1;
  missed_ = true;
  return nullptr;
}

// An operator whose requests depend on its data may hold them for longer than it did for its profile.
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

std::vector<std::pair<std::int64_t, std::int64_t>> escaped_stretches(const Arena& arena) {
  std::vector<std::pair<void*, std::int64_t>> held;
  {
    const std::lock_guard lock(escaped_mutex);  // a device that is asked may be asking what is held
    held = escaped();
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(arena.base());  // NOLINT: to compare with what lies elsewhere
  const auto end = begin + static_cast<std::uintptr_t>(arena.usable_bytes());
  std::vector<std::pair<std::int64_t, std::int64_t>> stretches;
  for (const auto& [place, bytes] : held) {
    const auto address = reinterpret_cast<std::uintptr_t>(place);  // NOLINT: the same
    if (address >= begin && address < end) stretches.emplace_back(address - begin, bytes);
  }
  return stretches;
}

std::int64_t end_of_escaped(const Arena& arena) {
  std::int64_t end = 0;
  for (const auto& [offset, bytes] : escaped_stretches(arena)) end = std::max(end, offset + bytes);
  return end;
}

bool overlaps_escaped(const std::byte* begin, std::int64_t bytes) {
  if (escaped_count.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(escaped_mutex);
  return any_overlap(escaped(), begin, bytes);
}

void release_in_arena(void* address) {
  if (Replay* replaying = this_thread.replaying; replaying != nullptr) {
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

void set_eager_replay(EagerReplay* replay) {
  this_thread.eager = replay;
}

void release(void* address) {
  if (address == nullptr) return;
  const PerThread& thread = this_thread;
  if (EagerReplay* eager = EagerReplay::if_made(); eager != nullptr) {
    if (thread.eager != nullptr && eager->is_recording()) eager->note_release(address);
    if (eager->contains(address)) {
      auto* begin = static_cast<std::byte*>(address);
      thread.eager != nullptr ? eager->release(begin) : eager->release_from_elsewhere(begin);
      return;
    }
  }
  if (cpu_device().contains(address)) {
    release_in_arena(address);  // arena memory is never recorded: profiles are taken outside of steps
    return;
  }
  Header* header = static_cast<Header*>(address) - 1;
  if (thread.recording != nullptr) {
    thread.recording->push_back({kCpu, false, header->bytes, address});
  }
  Replay* replaying = thread.replaying;
  if (replaying != nullptr && header->unplanned_in == replaying->step_) replaying->count_unplanned(-header->bytes);
  count_free(kCpu, header->bytes, header->serial);
  c10::profiledCPUMemoryReporter().Delete(address);
  if (header->spilled) {
    SpillFile::release(header, static_cast<std::size_t>(header->bytes) + sizeof(Header));
  } else if (!keep(header)) {
    c10::free_cpu(header);
  }
}

namespace {

void serve_eagerly(DeviceReplay& eager, c10::Device where, std::int64_t bytes, Served& served) {
  const DeviceReplay::Answer answer = eager.serve(bytes);
  served.address = answer.address;
  served.deleter = &release_replayed;
  served.followed = answer.records;
  if (served.address != nullptr) count_served(where, ArenaKind::replayed, answer.highest_end);
}

}  // namespace

Served serve_on(c10::Device where, std::int64_t bytes) {
  const PerThread& thread = this_thread;
  Served served;
  if (thread.uncounted) return served;
  if (Replay* replaying = thread.replaying_on(where); replaying != nullptr) {
    bool planned_outside = false;
    served.address = replaying->serve(static_cast<std::size_t>(bytes), &planned_outside);
    served.deleter = &release_in_arena;
    if (served.address == nullptr && !planned_outside) {
      replaying->count_unplanned(bytes);
      served.step = replaying->step_;
    }
  } else if (DeviceReplay* eager = DeviceReplay::if_running_on(where);
             eager != nullptr && thread.is_free() && eager->follows_request()) {
    serve_eagerly(*eager, where, bytes, served);
  }
  const bool metered = open_meters.load(std::memory_order_relaxed) > 0;
  served.watched =
      served.address == nullptr && (thread.recording != nullptr || served.step != 0 || served.followed || metered);
  return served;
}

std::uint64_t note_ordinary(c10::Device where, const void* address, std::int64_t bytes, const Served& served) {
  count_allocation(where, bytes);
  if (served.followed) DeviceReplay::process().note_ordinary(address, bytes);
  if (this_thread.recording != nullptr) this_thread.recording->push_back({where, true, bytes, address});
  return next_serial.fetch_add(1, std::memory_order_relaxed);
}

void note_freed(c10::Device where, const void* address, const WatchedBlock& block) {
  const auto [bytes, step, serial] = block;
  count_free(where, bytes, serial);
  if (DeviceReplay* eager = DeviceReplay::if_running_on(where); eager != nullptr) eager->note_freed(address);
  const PerThread& thread = this_thread;
  if (thread.recording != nullptr) thread.recording->push_back({where, false, bytes, address});
  if (step != 0 && thread.replaying != nullptr && step == thread.replaying->step_) {
    thread.replaying->count_unplanned(-bytes);
  }
}

}  // namespace lowtide::torch_runtime
