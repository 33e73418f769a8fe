// adapt.h: which blocks of a model are kept and which are dropped and run again, chosen for one batch.
//
// A model is a row of blocks. A block that is kept holds what its backward pass needs from its forward pass on; one
// that is dropped holds its arguments only, and runs again when its backward pass comes. So the level of memory rises
// through the forward pass and falls through the backward pass, and each stretch of it has a peak of its own:
//
//   level                      turn
//     |                   ____/\__                        kept blocks raise all that follows until they are freed;
//     |              ____/        \____   b2              a dropped one does not, but has a higher peak in its own
//     |    f0  f1 __/ f2               \__     b1         backward pass, where it runs again:
//     |  __/\__/\/                        \_______ b0     of the last block nothing is gained by dropping it
//     +------------------------------------------------ time
//
// All levels are above what was there when the batch came. They are given as if every other block were kept; what other
// dropped blocks free is taken off by peak_of(). Freed bytes and levels come from an Estimator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lowtide/units.h"

namespace lowtide {

struct BlockNeeds {
  // The highest level from the end of the block before to the end of this one, by what is done with this one.
  Bytes forward_kept;
  Bytes forward_dropped;
  // The same from where the gradient of its result is complete to where that of the next one is. `dropped` runs again.
  Bytes backward_kept;
  Bytes backward_dropped;
  // What others have less while this one is dropped: until the turn, and from the turn to its own backward pass.
  // Caches of the forward pass, such as that of autocast, can hold a part until the turn.
  Bytes freed_forward;
  Bytes freed_backward;
  Nanos again;  // how long it takes to run again
};

struct BatchNeeds {
  std::vector<BlockNeeds> blocks;            // in the order of the forward pass
  std::vector<std::uint32_t> backward = {};  // blocks in the order of the backward pass; empty for the reverse
  Bytes tail = {};                           // the peak after the last block, until the model returns
  Bytes turn = {};                           // the peak from there to the first backward pass of a block
  Bytes update = {};                         // the peak of what comes after: no choice changes it
};

struct Selection {
  std::vector<bool> dropped;
  Bytes peak;   // of the whole batch
  Nanos again;  // what runs again, in all
};

// The peak of a batch, exact for the needs. `dropped` has an entry for each block.
Bytes peak_of(const BatchNeeds& needs, const std::vector<bool>& dropped);

// -- choices ----------------------------------------------------------------------------------------------------------

// Algorithm 1 of Mimose: blocks in buckets of sizes within 10 %, largest bucket first, earliest block first within one;
// a bucket is taken from that is the nearest to the excess and above it, or else the largest. The size of a block is
// `freed_forward`, the excess that of the peak if all are kept. As published it adds up sizes and looks at no levels,
// so that its choice may be above the budget where the last blocks are chosen; peak_of() of it says.
Selection mimose(const BatchNeeds& needs, Bytes budget);

// The least time for which the peak is within the budget: a dynamic program over the blocks, whose states are bytes
// freed so far. It is exact as long as no more than `kStates` states have to be looked at; beyond that, states of
// nearly the same bytes are merged, which loses time but no byte. If nothing fits, the smallest peak that was found.
inline constexpr std::size_t kStates = 768;
inline constexpr std::size_t kFewestStates = 16;  // for each block, however many there are
Selection least_time(const BatchNeeds& needs, Bytes budget);

// The faster one of these that fits: within 100 microseconds for 48 blocks. If nothing fits, the smallest peak.
Selection select_blocks(const BatchNeeds& needs, Bytes budget);

// The selection with the smallest peak: what no budget can go below.
Selection least_peak(const BatchNeeds& needs);

struct Selector {
  std::string_view name;
  std::string_view sentence;
  Selection (*select)(const BatchNeeds&, Bytes budget);
};
std::span<const Selector> selectors();

}  // namespace lowtide
