#include "verify/occupancy.h"

#include <iterator>

namespace lowtide {

std::optional<BlockId> Occupancy::find(Bytes offset, Bytes end) const {
  const auto above = ranges_.upper_bound(offset);
  if (above != ranges_.end() && above->first < end) return above->second.block;
  if (above != ranges_.begin()) {
    const auto below = std::prev(above);
    if (below->second.end > offset) return below->second.block;
  }
  return std::nullopt;
}

}  // namespace lowtide
