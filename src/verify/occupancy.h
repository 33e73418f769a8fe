// occupancy.h: which bytes of the arena are taken, and by which block.
#pragma once

#include <map>
#include <optional>

#include "lowtide/units.h"

namespace lowtide {

// Disjoint byte ranges in the order of their offsets, so that a new one need only be compared with its two neighbours.
class Occupancy {
 public:
  // A block that has some of the bytes [offset, end), if any has. The range must not be empty.
  std::optional<BlockId> find(Bytes offset, Bytes end) const;

  // Takes bytes that nobody has.
  void take(Bytes offset, Bytes end, BlockId block) { ranges_.emplace(offset, Range{end, block}); }
  void give_back(Bytes offset) { ranges_.erase(offset); }

 private:
  struct Range {
    Bytes end;
    BlockId block;
  };
  std::map<Bytes, Range> ranges_;  // by offset
};

}  // namespace lowtide
