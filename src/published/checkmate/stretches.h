// stretches.h: a step as few stretches of ops, each of which runs as a whole: what an integer program can be made of.
//
// Stretches are stretches of the given order. A stretch makes *values*: items that are made in it, by the same
// stretch's repeat, and used by the same other stretches, taken together. What is made and used within a stretch only
// is no value; the most of it that is there at once is the stretch's *inner* bytes. An early stretch can run again:
// then the units run that end in it, which may be other ops than at first, and make their values again.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "trade/reruns.h"

namespace lowtide {

using Stretch = std::uint32_t;  // its index
using StretchValue = std::uint32_t;

struct Stretches {
  static constexpr Stretch kNone = std::numeric_limits<Stretch>::max();

  std::vector<Position> bounds;  // by stretch its first op; the number of ops at the end

  // By stretch.
  Lists<StretchValue> takes;        // when it runs first
  Lists<StretchValue> makes;        // when it runs first
  std::vector<std::int64_t> inner;  // bytes
  Lists<Unit> units;                // that run when it runs again: none if it cannot
  Lists<StretchValue> takes_again;  // when it runs again
  Lists<StretchValue> makes_again;  // when it runs again
  std::vector<std::int64_t> inner_again;
  std::vector<std::int64_t> cost_again;
  std::vector<Stretch> again_until;  // the last stretch before which it can run again and somebody may want it

  // By value.
  std::vector<std::int64_t> size;
  std::vector<Stretch> made_in;
  std::vector<Stretch> made_again_in;  // or kNone
  std::vector<Stretch> used_until;     // the last stretch that takes it when it runs first; their number if it is kept
  std::vector<Stretch> wanted_until;   // the last stretch that may want it, also to run another one again

  std::size_t count() const { return inner.size(); }

  // The most bytes at once if nothing runs again.
  std::int64_t peak() const;
};

// `bounds` begins with 0 and ends with the number of ops.
Stretches to_stretches(const Reruns& reruns, std::vector<Position> bounds);

}  // namespace lowtide
