// memory_guard.h: watches, while a step runs, that no operator reads or writes where it must not (LOWTIDE_GUARD=1).
//
// Every line (64 bytes) of the arena is alive (a buffer's, or the running operator's workspace), lent (somebody outside
// of the step holds it) or dead. Dead bytes hold poison: NaN in every floating dtype, far out of range as an index.
// Guarded plans leave a dead line on either side of every buffer and workspace:
//
//   | dead | activation 3 .... tail | dead | dead | workspace | dead | dead | activation 7 | dead |
//
//   before an operator   its operands are alive and hold what was last written to them; what it is given is dead, and
//                        still poison
//                        (unless it is made in the bytes of an operand)
//   after it             the bytes around its operands are still poison; what it wrote holds no poison, unless its
//                        operands did
//   after the last       every dead byte is still poison
//
// A stray write far away is found when somebody next looks there, and the fault names the operators that ran since the
// bytes were last known to be right. With GuardLevel::everything all of the arena is looked at after each operator, so
// that there is one suspect; that takes minutes instead of seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace lowtide::torch_runtime {

class Arena;

enum class GuardLevel { off, operands, everything };

constexpr std::int64_t kGuardMargin = 64;  // dead bytes on either side of whatever lies in a guarded arena

class MemoryFault : public std::runtime_error {
 public:
  enum class Kind {
    overlap,        // `buffer` is alive where the operator is given memory for `other`
    dead_operand,   // the operator is given `buffer`, which is not alive
    changed,        // `buffer` no longer holds what was written to it
    out_of_range,   // the operator wrote `distance` bytes in front of `buffer` (negative) or behind its end
    dead_changed,   // memory that belonged to nobody was written
    poison_result,  // the operator read memory that belongs to nobody, or left a part of its result `buffer` unwritten
  };
  static constexpr int kWorkspace = -1;  // as `buffer` or `other`: the workspace of the operator

  Kind kind;
  int buffer = kWorkspace;
  int other = kWorkspace;
  std::int64_t distance = 0;
  int first_suspect = 0;  // the operators that may have done it, by call: from the first to the last, inclusive
  int last_suspect = 0;

  explicit MemoryFault(Kind what);
};

class MemoryGuard {
 public:
  MemoryGuard(GuardLevel level, const Arena& arena, std::int64_t arena_bytes);

  // The next buffer; those that do not lie in the arena have no bytes.
  void add_buffer(std::int64_t offset, std::int64_t bytes);

  // The next call: buffers by index.
  struct Operands {
    std::vector<int> takes;                     // among its arguments
    std::vector<int> makes;                     // new with this call
    std::vector<int> writes;                    // of `takes`
    std::vector<std::pair<int, int>> replaces;  // of `takes`, and of `makes` in the bytes of that
    std::int64_t workspace_offset = 0;
    std::int64_t workspace_bytes = 0;
    bool may_leave_poison = false;  // its result is memory as it was found
  };
  void add_call(Operands operands);

  // In this order, for each call. All of them throw MemoryFault. `apart`: what it makes lies in no other's bytes.
  void begin_step(std::byte* base);  // where it runs
  void before(int call, bool apart);
  void lies_at(int buffer, const void* place);  // its memory was not served where it was planned
  void after(int call);
  void end_life(int call, int buffer);
  void end_step();

 private:
  struct Watched {
    std::int64_t offset;
    std::int64_t bytes;
    const std::byte* place = nullptr;
    bool alive = false;
    bool poisoned = false;      // holds poison that nobody has written over
    std::uint64_t content = 0;  // fingerprint of what was last written
    int known_after = 0;        // the last call after which content and margins were right
  };

  void take_over(int from, int to);
  void claim(int call, std::int64_t offset, std::int64_t bytes, int owner);
  void give_back(int call, std::int64_t offset, std::int64_t bytes);
  void check_taken(int call, int buffer);
  void check_margins(MemoryFault::Kind kind, int buffer, std::int64_t offset, std::int64_t bytes, int first, int last);
  void check_dead(int first, int last) const;
  void check_everything(int call);
  void note_written(int call, int buffer, bool poison_allowed);

  GuardLevel level_;
  const Arena& arena_;
  std::int64_t arena_bytes_;
  std::byte* base_ = nullptr;
  std::vector<int> lines_;  // by line: who owns it
  std::vector<Watched> buffers_;
  std::vector<Operands> calls_;
};

}  // namespace lowtide::torch_runtime
