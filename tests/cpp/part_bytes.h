// part_bytes.h: which bytes of a buffer a part has, one by one: the rule of axis.h, word for word.
#pragma once

#include <cstddef>
#include <vector>

#include "lowtide/plan.h"

namespace lowtide {

// In rising order. Without a period, all of them.
inline std::vector<std::size_t> bytes_of_part(Bytes size, Bytes period, const Part& part) {
  std::vector<std::size_t> bytes;
  for (std::size_t x = 0; x < size.count(); ++x) {
    const bool whole = period == Bytes(0);
    if (whole || (x % period.count()) / (period.count() / part.count) == part.index) bytes.push_back(x);
  }
  return bytes;
}

}  // namespace lowtide
