// overlaps.h: whether memory that a step writes is also known to it under another name.
//
//   bytes      0        64        128       192
//   weight     [========W=========]                   written by the step
//   argument            [------------------]          shows half of it: what it reads depends on when
//   target                                  [------]  shows none of it
//
// A program orders calls by the buffers that they touch, so two buffers must not share memory that one of them writes.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace lowtide::torch_runtime {

// The bytes `[begin, end)` that a step reaches through one of its buffers.
struct Reach {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  int buffer = -1;
  bool written = false;

  bool operator==(const Reach&) const = default;
};

// What lasts is set rarely, what comes with a call each time.
class Overlaps {
 public:
  // Sorts only if something is different from last time.
  void set_lasting(std::vector<Reach> lasting);

  // Two buffers that share bytes which one of them writes. `passing` comes on top of what lasts.
  std::optional<std::pair<int, int>> find(std::vector<Reach> passing);

 private:
  std::vector<Reach> given_;   // as they were set
  std::vector<Reach> sorted_;  // by their begin
  std::vector<Reach> all_;
};

}  // namespace lowtide::torch_runtime
