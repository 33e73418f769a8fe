// levels.h: the levels of memory that a batch goes through under a choice, kept up to date while single blocks change
// sides: what one more block would do to the peak takes a look at each level, not a walk through the batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lowtide/adapt.h"

namespace lowtide {

class Levels {
 public:
  // `dropped` has an entry for each block.
  Levels(const BatchNeeds& needs, const std::vector<bool>& dropped);

  // The peak if this one block were on the other side: kept if it is dropped now, and dropped if it is kept.
  Bytes peak_if_flipped(std::size_t block) const;
  void flip(std::size_t block);

  const std::vector<bool>& dropped() const { return dropped_; }

 private:
  // What a flip does: the block's own levels after it, and how much higher it makes those while it holds memory.
  struct Change {
    std::int64_t forward, backward;
    std::int64_t higher_forward, higher_backward;
  };
  Change change(std::size_t block) const;

  const BatchNeeds& needs_;
  std::vector<bool> dropped_;
  std::vector<std::size_t> place_;      // of each block in the order of the backward pass
  std::vector<std::int64_t> forward_;   // by block; the last one is that of the tail and the turn
  std::vector<std::int64_t> backward_;  // by place
};

}  // namespace lowtide
