// axis.h: how an op may run in parts, one after the other, so that its operands need not be there whole.
//
// An axis that runs through an op cuts its operands into parts. Of a buffer, only addresses matter: with period p and n
// parts, byte x belongs to part (x mod p) / (p / n). So rows of a matrix and columns of its transpose are the same
// parts, and a view needs no rule of its own.
//
//   y = softmax(x), x and y of 4 rows of 256 bytes, by rows in 2 parts       period 1024    0 0 0 0 | 1 1 1 1
//   y = relu(x), the same buffers, by columns in 2 parts                     period  256    0 1 | 0 1 | 0 1 | 0 1
//
// An operand without a period (0) is not cut: every part reads all of it, or adds to all of it. So a product of
// matrices, c = a b, has three axes:
//
//             a       b       c
//   rows      rows    -       rows       each part reads the whole of b
//   columns   -       cols    cols
//   inner     cols    rows    -          the parts of c are summed
//
// A sum in parts has other rounding than the whole one. So may have the parts of an op that computes each result by
// itself, where its kernel takes another path for another shape: PartCount says whether its bits are known to be those
// of the whole op.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/units.h"

namespace lowtide {

// What an op needs in this many parts.
struct PartCount {
  std::uint32_t count = 0;  // at least 2; divides every period of the axis
  Bytes workspace = {};     // of a part: scratch bytes, with what it cannot write in place
  Nanos cost = {};          // of a part
  bool exact = false;       // the bits of the whole op

  bool operator==(const PartCount&) const = default;
};

struct Axis {
  std::span<const Bytes> reads;       // parallel to the op's reads: periods
  std::span<const Bytes> writes;      // parallel to the op's writes
  std::span<const PartCount> counts;  // rising; never empty
};

// What an axis is made from.
struct AxisSpec {
  std::vector<Bytes> reads = {};
  std::vector<Bytes> writes = {};
  std::vector<PartCount> counts = {};
};

}  // namespace lowtide
