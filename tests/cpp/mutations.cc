#include "mutations.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "repeats.h"

namespace lowtide {
namespace {

std::optional<std::size_t> planned_block(const Draft& draft, Random& random) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < draft.blocks.size(); ++i) {
    if (draft.blocks[i].offset) found.push_back(i);
  }
  if (found.empty()) return std::nullopt;
  return found[random() % found.size()];
}

Bytes any_place(const Draft& draft, Random& random) {
  return Bytes(64 * (random() % (draft.arena.count() / 64 + 3)));
}

bool move_block(const Graph& graph, Draft& draft, Random& random) {
  const auto block = planned_block(draft, random);
  if (!block) return false;
  draft.blocks[*block].offset = any_place(draft, random);
  maybe_restate(graph, draft, random);
  return true;
}

bool misalign_block(const Graph& graph, Draft& draft, Random& random) {
  const auto block = planned_block(draft, random);
  if (!block) return false;
  *draft.blocks[*block].offset += Bytes(1 + random() % 63);
  maybe_restate(graph, draft, random);
  return true;
}

bool lift_block_out_of_sight(const Graph&, Draft& draft, Random& random) {
  const auto block = planned_block(draft, random);
  if (!block) return false;
  draft.blocks[*block].offset =
      chance(random, 0.5) ? Bytes(~std::uint64_t{63}) : align_up(draft.arena) + Bytes(64 * (random() % 4));
  return true;
}

bool swap_offsets(const Graph& graph, Draft& draft, Random& random) {
  const auto a = planned_block(draft, random);
  const auto b = planned_block(draft, random);
  if (!a || a == b) return false;
  std::swap(draft.blocks[*a].offset, draft.blocks[*b].offset);
  maybe_restate(graph, draft, random);
  return true;
}

// A result moves to where an operand lies that it may replace; mostly their lives meet there.
bool reuse_place(const Graph& graph, Draft& draft, Random& random) {
  std::vector<std::pair<StepIndex, Reuse>> found;
  for (StepIndex step(0); step.index() < draft.steps.size(); step = step.next()) {
    for (const Reuse& reuse : graph.op(draft.steps[step.index()].op).reuses) found.emplace_back(step, reuse);
  }
  if (found.empty()) return false;
  const auto& [step, reuse] = found[random() % found.size()];
  const auto block_of = [&](BufferId buffer, const std::vector<BlockId>& operands) -> Block& {
    const auto stands_in = [&](BlockId id) { return draft.blocks[id.index()].buffer == buffer; };
    const auto operand = std::ranges::find_if(operands, stands_in);
    return draft.blocks[operand != operands.end() ? operand->index() : buffer.index()];
  };
  Block& from = block_of(reuse.from, draft.steps[step.index()].reads);
  Block& to = block_of(reuse.to, draft.steps[step.index()].writes);
  to.offset = from.offset;
  if (chance(random, 0.8)) from.end = step.next();
  if (chance(random, 0.8)) to.begin = step;
  if (chance(random, 0.2)) to.offset = any_place(draft, random);
  maybe_restate(graph, draft, random);
  return true;
}

bool free_early(const Graph& graph, Draft& draft, Random& random) {
  const auto block = planned_block(draft, random);
  if (!block) return false;
  StepIndex& end = draft.blocks[*block].end;
  end = StepIndex(end.index() - std::min<std::size_t>(end.index(), 1 + random() % 2));
  maybe_restate(graph, draft, random);
  return true;
}

bool begin_late(const Graph& graph, Draft& draft, Random& random) {
  const auto block = planned_block(draft, random);
  if (!block) return false;
  StepIndex& begin = draft.blocks[*block].begin;
  begin = StepIndex(begin.index() + 1 + random() % 2);
  maybe_restate(graph, draft, random);
  return true;
}

bool live_longer(const Graph& graph, Draft& draft, Random& random) {
  const auto block = planned_block(draft, random);
  if (!block) return false;
  StepIndex& begin = draft.blocks[*block].begin;
  StepIndex& end = draft.blocks[*block].end;
  if (chance(random, 0.5)) {
    if (begin == StepIndex(0)) return false;
    begin = StepIndex(random() % begin.index());
  } else {
    if (end.index() > draft.steps.size()) return false;
    end = StepIndex(end.index() + 1 + random() % (draft.steps.size() - end.index() + 1));
  }
  maybe_restate(graph, draft, random);
  return true;
}

// Lives stay in place: the two ops meet each other's blocks.
bool swap_steps(const Graph& graph, Draft& draft, Random& random) {
  if (draft.steps.size() < 2) return false;
  const std::size_t a = random() % (draft.steps.size() - 1);
  const std::size_t b = chance(random, 0.7) ? a + 1 : a + 1 + random() % (draft.steps.size() - 1 - a);
  std::swap(draft.steps[a], draft.steps[b]);
  maybe_restate(graph, draft, random);
  return true;
}

void move_step(Draft& draft, std::size_t from, std::size_t to) {
  const auto at = [&](std::size_t i) { return draft.steps.begin() + static_cast<std::ptrdiff_t>(i); };
  if (from < to) std::rotate(at(from), at(from + 1), at(to + 1));
  if (to < from) std::rotate(at(to), at(from), at(from + 1));
}

bool reorder_neighbours(const Graph& graph, Draft& draft, Random& random) {
  if (draft.steps.size() < 2) return false;
  const std::size_t a = random() % (draft.steps.size() - 1);
  move_step(draft, a, a + 1);
  follow(graph, draft, random);
  return true;
}

bool reorder_far(const Graph& graph, Draft& draft, Random& random) {
  const std::size_t from = random() % draft.steps.size();
  const std::size_t to = random() % draft.steps.size();
  if (from == to) return false;
  move_step(draft, from, to);
  follow(graph, draft, random);
  return true;
}

bool update_early(const Graph& graph, Draft& draft, Random& random) {
  std::vector<std::size_t> updates;
  for (std::size_t i = 1; i < draft.steps.size(); ++i) {
    for (const VersionId write : graph.op(draft.steps[i].op).writes) {
      const Version version = graph.version(write);
      if (version.index > 0 && !graph.buffer(version.buffer).planned()) updates.push_back(i);
    }
  }
  if (updates.empty()) return false;
  const std::size_t from = updates[random() % updates.size()];
  move_step(draft, from, random() % from);
  follow(graph, draft, random);
  return true;
}

bool use_wrong_block(const Graph& graph, Draft& draft, Random& random) {
  DraftStep& step = draft.steps[random() % draft.steps.size()];
  std::vector<BlockId>& operands = chance(random, 0.7) ? step.reads : step.writes;
  if (operands.empty()) return false;
  BlockId& operand = operands[random() % operands.size()];
  const BlockId other(random() % draft.blocks.size());
  if (operand == other) return false;
  operand = other;
  if (chance(random, 0.3)) follow(graph, draft, random);
  return true;
}

BlockId add_block(Draft& draft, BufferId buffer, Random& random) {
  const StepIndex begin(random() % draft.steps.size());
  const StepIndex end(begin.index() + 1 + random() % (draft.steps.size() - begin.index()));
  draft.blocks.push_back({buffer, begin, end, any_place(draft, random)});
  return BlockId(draft.blocks.size() - 1);
}

// An in-place op writes to a second block; those who come after follow it there, or not.
bool drop_alias(const Graph& graph, Draft& draft, Random& random) {
  const std::size_t at = random() % draft.steps.size();
  DraftStep& step = draft.steps[at];
  for (std::size_t i = 0; i < step.writes.size(); ++i) {
    const Version version = graph.version(graph.op(step.op).writes[i]);
    if (version.index == 0 || !graph.buffer(version.buffer).planned()) continue;
    const BlockId old = step.writes[i];
    const BlockId fresh = add_block(draft, version.buffer, random);
    step.writes[i] = fresh;
    if (chance(random, 0.6)) {
      for (std::size_t later = at + 1; later < draft.steps.size(); ++later) {
        std::ranges::replace(draft.steps[later].reads, old, fresh);
        std::ranges::replace(draft.steps[later].writes, old, fresh);
      }
    }
    follow(graph, draft, random);
    return true;
  }
  return false;
}

// A place that nobody uses.
bool spare_block(const Graph& graph, Draft& draft, Random& random) {
  const auto block = planned_block(draft, random);
  if (!block) return false;
  add_block(draft, draft.blocks[*block].buffer, random);
  maybe_restate(graph, draft, random);
  return true;
}

bool rename_blocks(const Graph&, Draft& draft, Random& random) {
  std::vector<BlockId> renamed;
  for (std::size_t i = 0; i < draft.blocks.size(); ++i) renamed.emplace_back(i);
  std::ranges::shuffle(renamed, random);
  std::vector<Block> blocks(draft.blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[renamed[i].index()] = draft.blocks[i];
  draft.blocks = std::move(blocks);
  for (DraftStep& step : draft.steps) {
    for (BlockId& block : step.reads) block = renamed[block.index()];
    for (BlockId& block : step.writes) block = renamed[block.index()];
  }
  for (Transfer& transfer : draft.transfers) {
    for (BlockId* const end : {&transfer.from, &transfer.to}) {
      if (end->index() < renamed.size()) *end = renamed[end->index()];
    }
  }
  return true;
}

bool move_workspace(const Graph& graph, Draft& draft, Random& random) {
  DraftStep& step = draft.steps[random() % draft.steps.size()];
  if (workspace_of(graph, step) == Bytes(0) && chance(random, 0.95)) return false;
  step.workspace = any_place(draft, random);
  if (chance(random, 0.1)) step.workspace += Bytes(1 + random() % 63);
  maybe_restate(graph, draft, random);
  return true;
}

bool misstate_figure(const Graph&, Draft& draft, Random& random) {
  const std::array figures = {&draft.arena, &draft.peak, &draft.bound, &draft.resident};
  const std::uint64_t change = 1 + random() % 130;
  if (chance(random, 0.2)) {
    draft.time += Nanos(change);
    return true;
  }
  Bytes& figure = *figures[random() % figures.size()];
  const Bytes before = figure;
  figure = chance(random, 0.5) ? figure + Bytes(change) : figure - Bytes(change);
  return figure != before;
}

bool drop_step(const Graph& graph, Draft& draft, Random& random) {
  draft.steps.erase(draft.steps.begin() + static_cast<std::ptrdiff_t>(random() % draft.steps.size()));
  if (draft.steps.empty()) return false;
  follow(graph, draft, random);
  return true;
}

bool repeat_step(const Graph& graph, Draft& draft, Random& random) {
  const DraftStep step = draft.steps[random() % draft.steps.size()];
  draft.steps.insert(draft.steps.begin() + static_cast<std::ptrdiff_t>(random() % (draft.steps.size() + 1)), step);
  follow(graph, draft, random);
  return true;
}

bool make_again(const Graph& graph, Draft& draft, Random& random) {
  if (!add_repeat(graph, draft, random)) return false;
  follow(graph, draft, random);
  return true;
}

// A step runs again somewhere, and what it makes goes to blocks of its own. Nobody has asked whether it may.
bool repeat_step_apart(const Graph& graph, Draft& draft, Random& random) {
  const std::size_t from = random() % draft.steps.size();
  DraftStep step = draft.steps[from];
  for (std::size_t i = 0; i < step.writes.size(); ++i) {
    const Version version = graph.version(graph.op(step.op).writes[i]);
    if (graph.buffer(version.buffer).planned() && (version.index == 0 || chance(random, 0.2)))
      step.writes[i] = add_block(draft, version.buffer, random);
  }
  const std::size_t to = chance(random, 0.5) ? from + 1 : random() % (draft.steps.size() + 1);
  draft.steps.insert(draft.steps.begin() + static_cast<std::ptrdiff_t>(to), std::move(step));
  follow(graph, draft, random);
  return true;
}

// An operand is taken from another block of its buffer; all operands of that step in the old block, or only this one.
bool use_other_block(const Graph& graph, Draft& draft, Random& random) {
  DraftStep& step = draft.steps[random() % draft.steps.size()];
  if (step.reads.empty()) return false;
  BlockId& operand = step.reads[random() % step.reads.size()];
  const BlockId old = operand;
  std::vector<BlockId> others;
  for (BlockId id(0); id.index() < draft.blocks.size(); id = id.next()) {
    if (id != old && draft.blocks[id.index()].buffer == draft.blocks[old.index()].buffer) others.push_back(id);
  }
  if (others.empty()) return false;
  const BlockId other = others[random() % others.size()];
  operand = other;
  if (chance(random, 0.7)) {
    std::ranges::replace(step.reads, old, other);
    std::ranges::replace(step.writes, old, other);
  }
  if (chance(random, 0.7)) follow(graph, draft, random);
  return true;
}

bool confuse_residence(const Graph& graph, Draft& draft, Random& random) {
  const std::size_t i = random() % draft.blocks.size();
  if (graph.buffer(draft.blocks[i].buffer).planned()) {
    draft.blocks[i].offset.reset();
    return true;
  }
  switch (random() % 4) {
    case 0:
      draft.blocks[i].offset = any_place(draft, random);
      break;
    case 1:
      draft.blocks[i].end = StepIndex(random() % draft.steps.size());
      break;
    case 2:
      draft.blocks.push_back(draft.blocks[i]);
      break;
    default:
      draft.blocks[i].begin = StepIndex(1);
  }
  return true;
}

constexpr std::array kMutations = {
    Mutation{"move block", 4, move_block},
    Mutation{"misalign block", 1, misalign_block},
    Mutation{"lift block out of sight", 1, lift_block_out_of_sight},
    Mutation{"swap offsets", 4, swap_offsets},
    Mutation{"reuse place", 6, reuse_place},
    Mutation{"free early", 4, free_early},
    Mutation{"begin late", 4, begin_late},
    Mutation{"live longer", 4, live_longer},
    Mutation{"swap steps", 4, swap_steps},
    Mutation{"reorder neighbours", 4, reorder_neighbours},
    Mutation{"reorder far", 4, reorder_far},
    Mutation{"update early", 4, update_early},
    Mutation{"use wrong block", 4, use_wrong_block},
    Mutation{"drop alias", 6, drop_alias},
    Mutation{"spare block", 4, spare_block},
    Mutation{"rename blocks", 4, rename_blocks},
    Mutation{"move workspace", 4, move_workspace},
    Mutation{"misstate figure", 2, misstate_figure},
    Mutation{"drop step", 1, drop_step},
    Mutation{"repeat step", 1, repeat_step},
    Mutation{"make again", 6, make_again},
    Mutation{"repeat step apart", 6, repeat_step_apart},
    Mutation{"use other block", 4, use_other_block},
    Mutation{"confuse residence", 1, confuse_residence},
};

}  // namespace

std::span<const Mutation> mutations() {
  return kMutations;
}

const Mutation& any_of(std::span<const Mutation> mutations, Random& random) {
  std::vector<int> weights;
  for (const Mutation& mutation : mutations) weights.push_back(mutation.weight);
  return mutations[std::discrete_distribution<std::size_t>(weights.begin(), weights.end())(random)];
}

bool chance(Random& random, double p) {
  return static_cast<double>(random() % 1000) < 1000 * p;
}

void maybe_restate(const Graph& graph, Draft& draft, Random& random) {
  if (chance(random, 0.85)) restate(graph, draft);
}

void follow(const Graph& graph, Draft& draft, Random& random) {
  derive_lives(graph, draft);
  if (chance(random, 0.7)) pack_again(graph, draft, random);
  maybe_restate(graph, draft, random);
}

}  // namespace lowtide
