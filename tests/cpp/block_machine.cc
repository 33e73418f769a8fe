#include "block_machine.h"

#include <algorithm>
#include <numeric>

namespace lowtide::testing {

BlockMachine::BlockMachine(std::uint32_t seed, std::size_t blocks, bool lingering) {
  std::mt19937 random(seed);
  const auto draw = [&](std::uint64_t most) { return std::uniform_int_distribution<std::uint64_t>(0, most)(random); };
  for (std::size_t i = 0; i < blocks; ++i) {
    std::vector<Growth> growths;
    for (const std::uint64_t most : {400, 100, 10, lingering ? 60 : 0, 200, 50, 200, 80}) {
      growths.push_back({most == 10 ? draw(most) : draw(most) * 10, most == 10 ? 0 : draw(most), draw(most) / 40});
    }
    growths_.push_back(std::move(growths));
  }
  backward.resize(blocks);
  std::iota(backward.rbegin(), backward.rend(), 0U);
}

std::vector<BlockSizes> BlockMachine::sizes(std::uint64_t length) const {
  std::vector<BlockSizes> found;
  for (const auto& growths : growths_) {
    std::vector<std::uint64_t> at;
    for (const Growth& growth : growths) {
      at.push_back(growth.constant + growth.linear * length + growth.square * length * length);
    }
    const std::uint64_t inner = at[0] + at[3];  // what lingers is a part of it
    found.push_back({inner, at[1], at[2], at[3], inner + at[1] + at[4], at[3] + at[1] + at[2] + at[5], at[6], at[7],
                     1000 + inner / 2});
  }
  return found;
}

MachineRun BlockMachine::run(std::uint64_t length, const std::vector<bool>& dropped) const {
  const std::vector<BlockSizes> blocks = sizes(length);
  MachineRun run;
  run.observation.extents = {8, length};
  run.observation.blocks.resize(blocks.size());
  run.observation.backward = backward;
  std::uint64_t level = 0;
  const auto reach = [&](std::uint64_t height) {
    run.peak = std::max(run.peak, height);
    return Bytes(height);
  };
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const BlockSizes& block = blocks[i];
    BlockObservation& seen = run.observation.blocks[i];
    seen.dropped = dropped[i];
    seen.time = Nanos(block.time);
    seen.entered = Bytes(level);
    seen.forward_peak = reach(level + (dropped[i] ? block.scratch_dropped : block.scratch_kept));
    level += block.result + (dropped[i] ? block.overhead + block.lingers : block.inner);
    seen.left = Bytes(level);
    if (dropped[i]) {
      seen.saved = Bytes(block.inner);
      seen.lingering = Bytes(block.lingers);
      seen.result = Bytes(block.result);
    }
  }
  run.observation.tail_peak = reach(level + 5 * length);
  run.observation.turn_peak = reach(level + 3 * length);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (dropped[i]) level -= blocks[i].lingers;
  }
  for (const std::uint32_t i : backward) {
    const BlockSizes& block = blocks[i];
    BlockObservation& seen = run.observation.blocks[i];
    if (dropped[i]) {
      seen.before_again = Bytes(level);
      seen.again_peak = reach(level + block.scratch_kept);
      level += block.inner;
      seen.held_again = Bytes(block.inner);
      seen.settled_peak = reach(level + block.scratch_backward);
      level -= block.overhead;
    } else {
      seen.backward_peak = reach(level + block.scratch_backward);
    }
    level += block.gradients;
    level -= block.inner + block.result;
  }
  return run;
}

BatchNeeds BlockMachine::needs(std::uint64_t length) const {
  const std::vector<BlockSizes> blocks = sizes(length);
  BatchNeeds needs;
  needs.backward = backward;
  const std::vector<bool> kept(blocks.size(), false);
  const MachineRun all_kept = run(length, kept);
  needs.tail = all_kept.observation.tail_peak;
  needs.turn = all_kept.observation.turn_peak;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::vector<bool> one = kept;
    one[i] = true;
    const BlockObservation& with = all_kept.observation.blocks[i];
    const BlockObservation without = run(length, one).observation.blocks[i];
    const std::uint64_t freed = blocks[i].inner - blocks[i].overhead;
    needs.blocks.push_back({with.forward_peak, without.forward_peak, with.backward_peak,
                            std::max(without.again_peak, without.settled_peak), Bytes(freed - blocks[i].lingers),
                            Bytes(freed), Nanos(blocks[i].time)});
  }
  return needs;
}

std::vector<bool> random_choice(std::mt19937& random, std::size_t blocks) {
  std::vector<bool> choice(blocks);
  for (std::size_t i = 0; i < blocks; ++i) choice[i] = random() % 2 == 0;
  return choice;
}

}  // namespace lowtide::testing
