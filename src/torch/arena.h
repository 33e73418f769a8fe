// arena.h: the stretch of memory that planned tensors are served from.
//
// One arena serves all compiled steps on a device. Programs build their tensors once, at base + offset; where a device
// cannot let it grow in place it moves, and programs notice before they run. Only one step runs at a time (it holds
// `running`), so programs that share a model also share the memory: the arena is as large as the largest need, not as
// the sum. A step that pauses is not running:
// whoever runs meanwhile takes the next turn, and the paused step, whose bytes are gone, can tell.
//
//   base                      largest need
//   |------ program A: 40 MB -----|
//   |--- program B: 25 MB ---|    .   not the arena's, until a program needs it
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>

#include "device.h"

namespace lowtide::torch_runtime {

class Arena {
 public:
  static Arena& on(Device& device);

  Device& device() const { return device_; }
  std::byte* base() const { return device_.base(); }
  bool contains(const void* pointer) const { return device_.contains(pointer); }

  // A program of `bytes` begins to exist: that much becomes usable. Throws c10::Error when it cannot be had.
  void add_need(std::int64_t bytes);

  // A program is closed: what no remaining program needs, above `keep` bytes, goes back to the system. Wants `running`.
  void remove_need(std::int64_t bytes, std::int64_t keep);

  // Between two steps: the memory above `keep` bytes goes back to the system, until a step writes there.
  void empty_above(std::int64_t keep);

  // The largest need of any open program.
  std::int64_t usable_bytes();

  // Held while a step runs.
  std::mutex& running() { return running_; }

  // What was in the arena is no longer there from now on; wants `running`. Gives the number of the turn that begins.
  std::uint64_t take_turn() { return ++turn_; }
  std::uint64_t turn() const { return turn_; }

 private:
  explicit Arena(Device& device) : device_(device) {}

  Device& device_;
  std::mutex running_;
  std::atomic<std::uint64_t> turn_ = 0;
  std::mutex needs_mutex_;
  std::multiset<std::int64_t> needs_;
  std::int64_t usable_ = 0;
};

}  // namespace lowtide::torch_runtime
