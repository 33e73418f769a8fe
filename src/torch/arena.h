// arena.h: the stretch of memory that planned tensors are served from.
//
// One arena serves all programs on a device. Programs build their tensors once, at the place where they run; where a
// device cannot let it grow in place it moves, and programs notice before they run. Only one compiled step runs at a
// time (it holds `running`), so programs that share a model also share the memory: the arena is as large as the largest
// need, not as the sum. A step that pauses is not running:
// whoever runs meanwhile takes the next turn, and the paused step, whose bytes are gone, can tell.
//
//   base                      largest need
//   |------ program A: 40 MB -----|
//   |--- program B: 25 MB ---|    .   not the arena's, until a program needs it
//
// Whoever runs has a lease of the bytes that it runs in, at the lowest place that is free. A region between its forward
// and its backward pass keeps one, so that nothing else runs there:
//
//   |-- region A, forward --|--- program B: 25 MB ---|    .
//
// An arena that would have to move cannot grow while somebody has a lease. Who finds no room then runs in an annex,
// memory of its own; when all leases are given back, the arena grows to what they would have taken of it together.
//
//   |-- region A, forward --|       |--- program B: 25 MB ---|
//   |-- region A, forward --|--- program B: 25 MB ---|            from the next time on
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "device.h"

namespace lowtide::torch_runtime {

class Arena;

// A stretch of an arena that its holder has to itself; nothing if it was given back, or is of no bytes.
class Lease {
 public:
  Lease() = default;

  // The lowest stretch that is free. Throws c10::Error when it cannot be had.
  Lease(Arena& arena, std::int64_t bytes);

  // The stretch that begins at `base`, which must be free.
  Lease(Arena& arena, const std::byte* base, std::int64_t bytes);

  ~Lease() { give_back(); }
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  explicit operator bool() const { return arena_ != nullptr; }
  std::byte* base() const;
  std::int64_t annex_bytes() const { return annex_bytes_; }                     // 0: it lies in the arena
  std::int64_t bytes_below() const { return annex_ == nullptr ? offset_ : 0; }  // of the arena

  // Whether it ends there now; it grows only where nobody else is.
  bool resize(std::int64_t bytes);
  void give_back();

 private:
  void lie_at(Arena& arena, std::int64_t offset, std::int64_t bytes);

  Arena* arena_ = nullptr;
  std::int64_t offset_ = 0;  // in the arena, or where it would be there
  std::byte* annex_ = nullptr;
  std::int64_t annex_bytes_ = 0;
  std::uint64_t serial_ = 0;  // of the annex, for meters
};

class Arena {
 public:
  static Arena& on(Device& device);

  Device& device() const { return device_; }
  std::byte* base() const { return device_.base(); }
  bool contains(const void* pointer) const { return device_.contains(pointer); }

  // A program of `bytes` begins to exist: that much becomes usable, as soon as it can be had. Throws c10::Error when
  // there is no memory.
  void add_need(std::int64_t bytes);

  // A program is closed: what no remaining program needs, above `keep` bytes, goes back to the system. Wants `running`.
  void remove_need(std::int64_t bytes, std::int64_t keep);

  // The same without a program: somebody has let go of what was left there.
  void fit(std::int64_t keep);

  // Between two steps: the memory above `keep` bytes and all leases goes back to the system, until a step writes there.
  // Gives how many bytes stay.
  std::int64_t empty_above(std::int64_t keep);

  // The largest need of any open program.
  std::int64_t usable_bytes() const;

  // What holders of leases have of it.
  std::int64_t leased_bytes() const;

  // Held while a step runs.
  std::mutex& running() { return running_; }

  // What was in the arena is no longer there from now on; wants `running`. Gives the number of the turn that begins.
  std::uint64_t take_turn() { return ++turn_; }
  std::uint64_t turn() const { return turn_; }

 private:
  friend class Lease;
  explicit Arena(Device& device) : device_(device) {}

  // All of these want `needs_mutex_`.
  bool can_have(std::int64_t bytes) const;
  void make_usable(std::int64_t bytes);
  void shrink(std::int64_t keep);
  void grow_to_most();
  bool is_free(std::int64_t begin, std::int64_t end) const;
  std::int64_t lowest_free(std::int64_t bytes) const;
  std::int64_t end_of_leases() const;

  Device& device_;
  std::mutex running_;
  std::atomic<std::uint64_t> turn_ = 0;
  mutable std::mutex needs_mutex_;
  std::multiset<std::int64_t> needs_;
  std::map<std::int64_t, std::int64_t> leases_;  // begin -> end
  std::int64_t usable_ = 0;
  std::int64_t most_ = 0;     // the highest end of any lease, as if there were no annexes
  bool is_too_much_ = false;  // there is no memory for that
};

}  // namespace lowtide::torch_runtime
