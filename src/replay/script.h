// script.h: the requests that an iteration is known to make, in their sequence, and where each is served.
//
// A line of a script is one request: so many bytes at an offset of the arena, or outside of it if they outlive the
// iteration. Behind each line stand its owners before: the lines that last covered some byte of its place.
//
//   offset
//   128 +------+------+          lines    0: 64 bytes at 0      no owner before
//       |  1   |  3   |                   1: 64 bytes at 64     none
//    64 +------+------+                   2: 32 bytes at 0      0
//       |  0   | 2    |                   3: 64 bytes at 64     1
//     0 +------+------+--> sequence       4: 128 bytes at 0     0 and 2 (0 still owns bytes 32 to 64), 3
//
// Lines that are served in this sequence never overlap anything alive, if each is served only when its owners before
// have been released: whatever covered one of its bytes earlier than they did was released when they were served.
// Nothing is assumed about when lines are released.
//
// Lines at one offset share a slot, so that an address tells which: at most one of them is alive.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lowtide::replay {

inline constexpr std::int64_t kOutside = -1;

class Script {
 public:
  static constexpr std::uint32_t kNoSlot = 0xffff'ffff;

  struct Request {
    std::int64_t bytes;
    std::int64_t offset = kOutside;
  };

  struct Line {
    std::int64_t bytes;
    std::int64_t offset;
    std::uint32_t slot;  // kNoSlot if it is outside
    std::uint32_t owners_begin;
    std::uint32_t owners_end;
  };

  // No request is for zero bytes.
  explicit Script(std::span<const Request> requests);

  std::size_t size() const { return lines_.size(); }
  const Line& line(std::size_t index) const { return lines_[index]; }

  struct Owner {
    std::uint32_t line;
    std::uint32_t slot;
  };
  // Those before a line. One is there if its slot is held, and by it: later lines of the slot may be shorter.
  std::span<const Owner> owners(const Line& line) const {
    return {owners_.data() + line.owners_begin, line.owners_end - line.owners_begin};
  }

  std::size_t num_slots() const { return slots_.size(); }
  std::int64_t slot_offset(std::size_t index) const { return slots_[index]; }  // rising
  std::uint32_t slot_at(std::int64_t offset) const {
    std::size_t place = hash(offset);
    while (index_[place] != kNoSlot && slots_[index_[place]] != offset) place = (place + 1) & (index_.size() - 1);
    return index_[place];
  }

  std::int64_t arena_bytes() const { return arena_bytes_; }

  // Whether the first lines, so many of both, are the same: size and place.
  bool begins_like(const Script& other, std::size_t lines) const;

  // These lines were found to outlive the iteration.
  void move_outside(std::span<const std::uint32_t> lines);

 private:
  std::size_t hash(std::int64_t offset) const {
    return static_cast<std::size_t>(static_cast<std::uint64_t>(offset) * 0x9e37'79b9'7f4a'7c15u >> shift_);
  }
  void prepare();
  void make_slots();
  void find_owners();

  std::vector<Line> lines_;
  std::vector<Owner> owners_;
  std::vector<std::int64_t> slots_;  // their offsets
  std::int64_t arena_bytes_ = 0;
  std::vector<std::uint32_t> index_;  // slots by hash of their offset; a power of two, at most half full
  int shift_ = 63;
};

}  // namespace lowtide::replay
