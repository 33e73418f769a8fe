// block_machine.h: a row of blocks as numbers, and the level of memory when a batch goes through them: what needs,
// observations and plans are held to.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "lowtide/adapt.h"
#include "lowtide/estimator.h"

namespace lowtide::testing {

// One block, for a batch of one length. All in bytes.
struct BlockSizes {
  std::uint64_t inner;                          // made for the backward pass
  std::uint64_t result;                         // what the next block gets
  std::uint64_t overhead;                       // held instead, if it is dropped
  std::uint64_t lingers;                        // of `inner`: held until the turn even so
  std::uint64_t scratch_kept, scratch_dropped;  // forward peaks above the levels that the block begins with
  std::uint64_t scratch_backward;
  std::uint64_t gradients;  // that stay
  std::uint64_t time;
};

struct MachineRun {
  Observation observation;
  std::uint64_t peak = 0;
};

class BlockMachine {
 public:
  // Sizes grow with a length: constant, linear and square parts drawn by `seed`. `backward` is the order of the
  // backward passes; empty for the reverse.
  BlockMachine(std::uint32_t seed, std::size_t blocks, bool lingering = false);

  std::vector<BlockSizes> sizes(std::uint64_t length) const;
  MachineRun run(std::uint64_t length, const std::vector<bool>& dropped) const;
  // What is needed for such a batch, from runs in which one block differs from the others.
  BatchNeeds needs(std::uint64_t length) const;

  std::vector<std::uint32_t> backward;

 private:
  struct Growth {
    std::uint64_t constant, linear, square;
  };
  std::vector<std::vector<Growth>> growths_;
};

std::vector<bool> random_choice(std::mt19937& random, std::size_t blocks);

}  // namespace lowtide::testing
