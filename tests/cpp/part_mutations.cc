#include <algorithm>
#include <array>
#include <vector>

#include "mutations.h"
#include "splits.h"

namespace lowtide {
namespace {

DraftStep* step_in_parts(Draft& draft, Random& random) {
  std::vector<DraftStep*> found;
  for (DraftStep& step : draft.steps) {
    if (step.part.part.count > 1) found.push_back(&step);
  }
  return found.empty() ? nullptr : found[random() % found.size()];
}

Block* block_of_a_part(Draft& draft, Random& random) {
  std::vector<Block*> found;
  for (Block& block : draft.blocks) {
    if (block.part.count > 1) found.push_back(&block);
  }
  return found.empty() ? nullptr : found[random() % found.size()];
}

bool change_index(const Graph&, Draft& draft, Random& random) {
  DraftStep* const step = step_in_parts(draft, random);
  if (step == nullptr) return false;
  step->part.part.index = static_cast<std::uint32_t>(random() % (step->part.part.count + (random() % 4 == 0 ? 1 : 0)));
  return true;
}

bool change_count(const Graph& graph, Draft& draft, Random& random) {
  DraftStep* const step = step_in_parts(draft, random);
  if (step == nullptr) return false;
  step->part.part.count = static_cast<std::uint32_t>(random() % 6);
  maybe_restate(graph, draft, random);
  return true;
}

bool change_axis(const Graph& graph, Draft& draft, Random& random) {
  DraftStep* const step = step_in_parts(draft, random);
  if (step == nullptr) return false;
  step->part.axis = static_cast<std::uint32_t>(random() % (graph.num_axes(step->op) + 1));
  maybe_restate(graph, draft, random);
  return true;
}

// All parts of an op run along another axis.
bool turn_op(const Graph& graph, Draft& draft, Random& random) {
  const DraftStep* const step = step_in_parts(draft, random);
  if (step == nullptr) return false;
  const auto axis = static_cast<std::uint32_t>(random() % graph.num_axes(step->op));
  const OpId op = step->op;
  for (DraftStep& other : draft.steps) {
    if (other.op == op && other.part.part.count > 1) other.part.axis = axis;
  }
  maybe_restate(graph, draft, random);
  return true;
}

bool run_in_whole(const Graph& graph, Draft& draft, Random& random) {
  DraftStep* const step = step_in_parts(draft, random);
  if (step == nullptr) return false;
  step->part = {};
  maybe_restate(graph, draft, random);
  return true;
}

bool split_another_step(const Graph& graph, Draft& draft, Random& random) {
  if (!split_step(graph, draft, static_cast<std::uint32_t>(2 + random() % 3), random)) return false;
  follow(graph, draft, random);
  return true;
}

bool split_another_block(const Graph& graph, Draft& draft, Random& random) {
  if (!split_block(graph, draft, random)) return false;
  follow(graph, draft, random);
  return true;
}

bool change_part_of_block(const Graph& graph, Draft& draft, Random& random) {
  Block* const block = block_of_a_part(draft, random);
  if (block == nullptr) return false;
  switch (random() % 4) {
    case 0:
      block->part.index = static_cast<std::uint32_t>(random() % (block->part.count + 1));
      break;
    case 1:
      block->part.count = static_cast<std::uint32_t>(random() % 6);
      break;
    case 2:
      block->period = Bytes(random() % 2 == 0 ? block->period.count() / 2 : 2 * block->period.count());
      break;
    default:
      block->period = Bytes(0);
  }
  maybe_restate(graph, draft, random);
  return true;
}

// What a block has for one part, it has for the whole; or the other way round.
bool change_size_of_block(const Graph& graph, Draft& draft, Random& random) {
  Block& block = draft.blocks[random() % draft.blocks.size()];
  if (block.part.count > 1) {
    block.part = {};
    block.period = Bytes(0);
  } else {
    const auto count = static_cast<std::uint32_t>(2 + random() % 2);
    block.part = {static_cast<std::uint32_t>(random() % count), count};
    block.period = graph.buffer(block.buffer).size;
  }
  follow(graph, draft, random);
  return true;
}

bool swap_parts_of_blocks(const Graph& graph, Draft& draft, Random& random) {
  Block* const a = block_of_a_part(draft, random);
  Block* const b = block_of_a_part(draft, random);
  if (a == nullptr || a == b) return false;
  std::swap(a->part, b->part);
  maybe_restate(graph, draft, random);
  return true;
}

// Two parts of an op change places: the one that ran later runs first, in its own blocks.
bool swap_parts_of_an_op(const Graph& graph, Draft& draft, Random& random) {
  DraftStep* const a = step_in_parts(draft, random);
  if (a == nullptr) return false;
  std::vector<DraftStep*> others;
  for (DraftStep& step : draft.steps) {
    if (step.op == a->op && step.part != a->part) others.push_back(&step);
  }
  if (others.empty()) return false;
  DraftStep* const b = others[random() % others.size()];
  if (random() % 3 == 0) {
    std::swap(a->part, b->part);
  } else {
    std::swap(*a, *b);
  }
  follow(graph, draft, random);
  return true;
}

bool run_part_again(const Graph& graph, Draft& draft, Random& random) {
  const DraftStep* const step = step_in_parts(draft, random);
  if (step == nullptr) return false;
  DraftStep again = *step;
  const auto at = random() % 2 == 0 ? step - draft.steps.data() + 1
                                    : static_cast<std::ptrdiff_t>(random() % (draft.steps.size() + 1));
  const bool follows = random() % 2 == 0;  // whoever comes later uses what was made again
  for (BlockId& block : again.writes) {
    const BlockId old = block;
    if (!graph.buffer(draft.blocks[old.index()].buffer).planned()) continue;
    draft.blocks.push_back(draft.blocks[old.index()]);
    block = BlockId(draft.blocks.size() - 1);
    std::ranges::replace(again.reads, old, block);
    for (auto later = draft.steps.begin() + at; follows && later != draft.steps.end(); ++later) {
      if (later->part.part != again.part.part) continue;
      std::ranges::replace(later->reads, old, block);
      std::ranges::replace(later->writes, old, block);
    }
  }
  draft.steps.insert(draft.steps.begin() + at, std::move(again));
  follow(graph, draft, random);
  return true;
}

bool drop_part(const Graph& graph, Draft& draft, Random& random) {
  const DraftStep* const step = step_in_parts(draft, random);
  if (step == nullptr) return false;
  draft.steps.erase(draft.steps.begin() + (step - draft.steps.data()));
  follow(graph, draft, random);
  return true;
}

constexpr std::array kPartMutations = {
    Mutation{"change index", 3, change_index},
    Mutation{"change count", 1, change_count},
    Mutation{"change axis", 2, change_axis},
    Mutation{"turn op", 4, turn_op},
    Mutation{"run in whole", 1, run_in_whole},
    Mutation{"split another step", 8, split_another_step},
    Mutation{"split another block", 8, split_another_block},
    Mutation{"change part of block", 2, change_part_of_block},
    Mutation{"change size of block", 2, change_size_of_block},
    Mutation{"swap parts of blocks", 2, swap_parts_of_blocks},
    Mutation{"swap parts of an op", 6, swap_parts_of_an_op},
    Mutation{"run part again", 6, run_part_again},
    Mutation{"drop part", 1, drop_part},
};

}  // namespace

std::span<const Mutation> part_mutations() {
  return kPartMutations;
}

}  // namespace lowtide
