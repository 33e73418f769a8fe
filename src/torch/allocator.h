// allocator.h: PyTorch's allocators while Lowtide is loaded: the CPU's here, another device's by runtime.h.
//
// It does five things, each only when asked:
//   count    every byte that is allocated or freed, for the meters that are open (lowtide.measure());
//   record   the requests that one operator makes, for its profile;
//   keep     what is freed, for the next request of that size: an operator that is timed finds pages that are there;
//   replay   while an operator of a planned step runs, its k-th request is served at its planned address;
//   follow   iterations of eager code, with requests recorded and served by eager_replay.h or device_replay.h.
// Everything else goes to PyTorch's own allocation, on the CPU with a small header in front that remembers the size.
#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "runtime.h"

namespace lowtide::torch_runtime {

class Arena;

// Puts the CPU's allocator in place; once per process, at any time.
void install_allocator();

// -- counting ---------------------------------------------------------------------------------------------------------

enum class ArenaKind { planned, replayed };  // of compiled steps, and of eager iterations

// Bytes of one device allocated since the meter was opened, and still there: ordinary ones plus the arenas up to the
// highest address served since then. What was allocated before does not count, nor does freeing it.
struct Meter {
  c10::Device where = c10::Device(c10::kCPU);
  std::int64_t live_bytes = 0;              // ordinary bytes
  std::array<std::int64_t, 2> arenas = {};  // by ArenaKind
  std::int64_t peak_bytes = 0;              // of all
  std::int64_t allocations = 0;
  std::int64_t limit_bytes = kNoLimit;  // no ordinary request may raise live + arena above this
  std::uint64_t opened_at = 0;

  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  std::int64_t arena_bytes() const { return arenas[0] + arenas[1]; }
};
void open_meter(Meter* meter, c10::Device where);
void close_meter(Meter* meter);
Meter read_meter(const Meter* meter);

// Reads it, and lets `peak_bytes` begin anew from what is there.
Meter mark_meter(Meter* meter);

// From now on a request that would raise live + arena above `bytes` finds no memory: c10::OutOfMemoryError, which is
// torch.OutOfMemoryError in Python, as on a device that is full.
void limit_meter(Meter* meter, std::int64_t bytes);

// An arena of the device has shrunk to `bytes` (a program was closed): open meters no longer count what lies above.
void arena_shrunk_to(c10::Device where, ArenaKind kind, std::int64_t bytes);

// A block of an arena that is gone counts by itself until it is freed, which wants the serial number given here.
std::uint64_t count_left_behind(c10::Device where, std::int64_t bytes);
void count_left_behind_free(c10::Device where, std::int64_t bytes, std::uint64_t serial);

// While it lives, no request of this thread on a device other than the CPU is counted: it is for an arena, which counts
// as far as it is served.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
};

// -- recording
// ---------------------------------------------------------------------------------------------------------

struct RecordedEvent {
  c10::Device where;
  bool allocates;
  std::int64_t bytes;
  const void* address;
};
// Collects the requests of this thread until stopped.
void start_recording(std::vector<RecordedEvent>* events);
void stop_recording();

// -- keeping
// -----------------------------------------------------------------------------------------------------------

// While it lives, blocks that this thread frees are kept and serve its next requests of the same size. New pages can
// take longer than the operator that writes to them, and in a planned step there are none.
class Keeping {
 public:
  Keeping();
  ~Keeping();
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;

 private:
  friend void* take_kept(std::size_t bytes);
  friend bool keep(void* block);
  std::vector<void*> blocks_;  // with their headers
};

// -- replay
// ------------------------------------------------------------------------------------------------------------

// One request that an operator is known to make. A request in the arena carries its offset; one that outlives the step
// (a returned loss, a kept gradient, state that the optimizer makes) has none and is served by ordinary allocation.
struct Request {
  static constexpr std::int64_t kOutside = -1;
  std::int64_t bytes;
  std::int64_t offset = kOutside;
};

// What happened while a step was replayed.
struct ReplayStats {
  std::int64_t highest_end = 0;     // of any address served
  std::int64_t misses = 0;          // requests that are not as planned, and all later ones of their operator
  std::int64_t unplanned_live = 0;  // bytes of such requests alive now
  std::int64_t unplanned_peak = 0;
};

// Replays one step on the thread that makes it, in a stretch of the arena that the step has to itself.
//
// A request is served at its planned place only if it and all before it in its operator's run are of exactly the
// planned sizes. After the first that departs from the plan, nobody knows what the others are for: a temporary could be
// given the place of the result, where an operand still lies.
class Replay {
 public:
  // Of requests on the arena's device, at offsets from `base`. `margin` bytes behind whatever is served belong to the
  // plan as well. What is served in an annex is not counted: meters know of all of it.
  Replay(Arena& arena, std::byte* base, ReplayStats* stats, std::int64_t margin, bool in_annex = false);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  c10::Device device() const;

  void begin_op(const Request* requests, std::size_t count);

  // The operator is done and its results are dropped: arena memory that somebody still holds has escaped. It will not
  // be served again until it is let go. Gives the number of such blocks and whether any request missed.
  struct OpOutcome {
    std::size_t escaped;
    bool missed;
  };
  OpOutcome end_op();

 private:
  friend class ReplayingAllocator;
  friend void release_in_arena(void* address);
  friend void release(void* address);
  friend Served serve_on(c10::Device where, std::int64_t bytes);
  friend void note_freed(c10::Device where, const void* address, const WatchedBlock& block);
  void* serve(std::size_t bytes, bool* planned_outside);
  void count_unplanned(std::int64_t bytes);
  bool overlaps_held(const std::byte* begin, std::int64_t bytes) const;

  Arena& arena_;
  std::byte* base_;
  Replay* around_;  // what this thread replays otherwise
  ReplayStats* stats_;
  std::int64_t margin_;
  bool in_annex_;
  std::uint64_t step_;
  const Request* requests_ = nullptr;
  std::size_t count_ = 0;
  std::size_t next_ = 0;
  bool missed_ = false;                               // by any request of the running operator
  bool departed_ = false;                             // from the planned sequence: the rest of its requests are misses
  std::vector<std::pair<void*, std::int64_t>> held_;  // served to the running operator and not yet given back
};

// -- following
// ---------------------------------------------------------------------------------------------------------

// This thread's requests are those of eager iterations from now on, or with null no longer.
class EagerReplay;
void set_eager_replay(EagerReplay* replay);

// A stretch of the arena that somebody outside the program holds: not served until `release` is called on it.
void mark_escaped(void* address, std::int64_t bytes);

// All such stretches of an arena: their offsets in it, and bytes.
std::vector<std::pair<std::int64_t, std::int64_t>> escaped_stretches(const Arena& arena);

// The end of the last of them, as an offset in the arena; 0 if there are none.
std::int64_t end_of_escaped(const Arena& arena);
bool overlaps_escaped(const std::byte* begin, std::int64_t bytes);

// The deleter of every pointer that this allocator or the CPU's arena hands out.
void release(void* address);

// -- other devices
// -----------------------------------------------------------------------------------------------------

// See runtime.h.
Served serve_on(c10::Device where, std::int64_t bytes);
std::uint64_t note_ordinary(c10::Device where, const void* address, std::int64_t bytes, const Served& served);
void note_freed(c10::Device where, const void* address, const WatchedBlock& block);

// The deleter of what lies in an arena that is not the CPU's.
void release_in_arena(void* address);

}  // namespace lowtide::torch_runtime
