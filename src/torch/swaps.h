// swaps.h: the transfers of a program, begun and waited for between its calls.
//
//   before call i      1  stores that are to begin here begin
//                      2  stores that are to be over here are waited for
//                      3  loads begin
//                      4  loads are waited for
//
// A block of a buffer whose home is in the tier may have been written and not yet stored when the step stops: flush()
// stores it then, so that the home has what the caller would find without a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "slow_tier.h"

namespace lowtide::torch_runtime {

struct SwapTransfer {
  int from;  // buffers of the program
  int to;
  int issue;  // before which call it begins
  int wait;   // before which call it is over; the number of calls: before the end
  bool stores;
};

// Where the buffers of a program are now.
class SwapPlaces {
 public:
  virtual ~SwapPlaces() = default;
  virtual std::byte* in_memory(int buffer) = 0;                       // in the arena, or elsewhere
  virtual std::byte* to_load(int buffer) = 0;                         // the same, where nobody else is
  virtual bool is_planned_place(int buffer) = 0;                      // and not elsewhere
  virtual std::byte* home(int buffer) = 0;                            // null for a slot
  virtual bool is_whole_storage(int buffer) = 0;                      // at home
  virtual std::int64_t slot(int buffer) = 0;                          // of one that has no home
  virtual std::int64_t bytes(int buffer) = 0;                         // to be moved
  virtual void bring_home(int buffer, const std::byte* content) = 0;  // to ordinary memory, when the tier fails
};

class Swaps {
 public:
  Swaps(std::shared_ptr<SlowTier> tier, std::int64_t slot_bytes);
  ~Swaps();
  Swaps(const Swaps&) = delete;
  Swaps& operator=(const Swaps&) = delete;

  SlowTier& tier() const { return *tier_; }
  std::int64_t first_slot() const { return first_slot_; }

  // In the order of the plan.
  void add(SwapTransfer transfer);

  // `buffer` is a block in memory of the one whose home is `home`.
  void has_home(int buffer, int home);

  // After the last call: there are so many.
  void finish(std::size_t calls);

  void begin_step();
  void before(int call, SwapPlaces& places);
  void wrote(int buffer);

  // After a failure: what is still under way counts as stuck.
  void note_if_stuck();

  // Throws while a transfer is under way that an earlier step has given up: it may still write to the arena.
  static void refuse_while_stuck();

  // All transfers are over, and homes have what was written: before somebody else has the arena. Throws what the first
  // failed transfer throws, after the others.
  void settle(SwapPlaces& places);

 private:
  struct Moving {
    SwapTransfer transfer;
    SlowTier::Ticket ticket = 0;
    bool under_way = false;
  };

  void begin(Moving& moving, SwapPlaces& places);
  std::optional<std::int64_t> home_slot(int buffer, SwapPlaces& places) const;
  void end(Moving& moving);
  int home_of(int buffer) const;

  std::shared_ptr<SlowTier> tier_;
  std::int64_t slot_bytes_;
  std::int64_t first_slot_;
  std::vector<Moving> moving_;
  std::vector<std::vector<int>> issues_;  // by call: transfers
  std::vector<std::vector<int>> waits_;
  std::vector<int> homes_;   // by buffer: -1 if it has none
  std::vector<bool> dirty_;  // by buffer: written, and not stored since
};

}  // namespace lowtide::torch_runtime
