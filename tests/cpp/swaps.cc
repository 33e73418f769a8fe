#include "swaps.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/words.h"
#include "random_graph.h"

namespace lowtide {
namespace {

using Random = std::mt19937_64;

std::size_t between(std::size_t least, std::size_t most, Random& random) {
  return least + random() % (most - least + 1);
}

bool writes(const DraftStep& step, BlockId block) {
  return std::ranges::count(step.writes, block) > 0;
}

std::vector<std::size_t> steps_with(const Draft& draft, BlockId block) {
  std::vector<std::size_t> found;
  for (std::size_t step = 0; step < draft.steps.size(); ++step) {
    if (std::ranges::count(draft.steps[step].reads, block) > 0 || writes(draft.steps[step], block))
      found.push_back(step);
  }
  return found;
}

BlockId add_block(Draft& draft, const Block& like, std::uint32_t tier) {
  draft.blocks.push_back(
      {like.buffer, StepIndex(0), StepIndex(draft.steps.size()), Bytes(0), tier, like.part, like.period});
  return BlockId(draft.blocks.size() - 1);
}

void add_transfer(Draft& draft, BlockId from, BlockId to, std::size_t issue, std::size_t wait) {
  draft.transfers.push_back({from, to, StepIndex(issue), StepIndex(wait)});
}

std::uint32_t any_tier(const Draft& draft, Random& random) {
  return static_cast<std::uint32_t>(between(1, draft.tiers.size(), random));
}

// The first step before which the content that `block` has after `use` can be stored.
std::size_t stored_from(const Draft& draft, BlockId block, std::size_t use) {
  std::size_t first = 0;
  for (const Transfer& transfer : draft.transfers) {
    if (transfer.to == block) first = std::max(first, transfer.wait.index() + 1);
  }
  for (std::size_t step = 0; step <= use; ++step) {
    if (writes(draft.steps[step], block)) first = std::max(first, step + 1);
  }
  return first;
}

void follow_from(Draft& draft, std::size_t first, std::size_t end, BlockId old, BlockId fresh) {
  for (std::size_t step = first; step < end; ++step) {
    std::ranges::replace(draft.steps[step].reads, old, fresh);
    std::ranges::replace(draft.steps[step].writes, old, fresh);
  }
}

bool has_part(const Draft& draft, BlockId block) {
  return draft.blocks[block.index()].part.count > 1;
}

// Between those steps it may hold no version in whole.
bool is_made_in_parts(const Draft& draft, BlockId block) {
  if (has_part(draft, block)) return false;
  return std::ranges::any_of(draft.steps,
                             [&](const DraftStep& step) { return step.part.part.count > 1 && writes(step, block); });
}

// A planned block in memory that no store has left yet.
std::optional<BlockId> stayed(const Graph& graph, const Draft& draft, Random& random) {
  std::vector<BlockId> found;
  for (BlockId id(0); id.index() < draft.blocks.size(); id = id.next()) {
    const Block& block = draft.blocks[id.index()];
    const bool left = std::ranges::count(draft.transfers, id, &Transfer::from) > 0;
    if (graph.buffer(block.buffer).planned() && block.tier == 0 && !left && !is_made_in_parts(draft, id))
      found.push_back(id);
  }
  if (found.empty()) return std::nullopt;
  const auto [first, end] = std::ranges::partition(found, [&](BlockId id) { return has_part(draft, id); });
  if (first != found.begin() && random() % 2 == 0) found.erase(first, end);
  return found[random() % found.size()];
}

}  // namespace

Draft draft_with_swaps(const Graph& graph, Random& random) {
  Draft draft = draft_plan(graph, random_order(graph, random), random);
  add_tiers(draft, random);
  for (std::size_t i = 1 + random() % 5; i > 0; --i) swap_out(graph, draft, random);
  for (std::size_t i = random() % 3; i > 0; --i) move_home(graph, draft, random);
  sort_transfers(draft, random);
  settle(graph, draft, random);
  return draft;
}

void add_tiers(Draft& draft, Random& random) {
  const auto rate = [&] { return Bytes(between(500'000'000, 20'000'000'000, random)); };
  for (std::size_t i = between(1, 2, random); i > 0; --i) {
    const Link link{rate(), rate(), Nanos(random() % 3 == 0 ? 0 : random() % 50), random() % 2 == 0};
    draft.tiers.push_back({.name = words("t", i), .link = link});
  }
}

bool swap_out(const Graph& graph, Draft& draft, Random& random) {
  const std::optional<BlockId> block = stayed(graph, draft, random);
  if (!block) return false;
  const BufferId buffer = draft.blocks[block->index()].buffer;
  const std::vector<std::size_t> uses = steps_with(draft, *block);
  if (uses.empty()) return false;
  const std::size_t at = random() % uses.size();
  if (at + 1 == uses.size() && !graph.buffer(buffer).kept) return false;
  const std::size_t next = at + 1 < uses.size() ? uses[at + 1] : draft.steps.size() - 1;
  const std::size_t first = stored_from(draft, *block, uses[at]);
  if (first > next) return false;
  std::vector<std::size_t> times;
  for (int i = 0; i < 4; ++i) times.push_back(between(first, next, random));
  std::ranges::sort(times);
  const Block like = draft.blocks[block->index()];
  const BlockId slot = add_block(draft, like, any_tier(draft, random));
  const BlockId back = add_block(draft, like, 0);
  add_transfer(draft, *block, slot, times[0], times[1]);
  add_transfer(draft, slot, back, times[2], times[3]);
  if (at + 1 < uses.size()) follow_from(draft, next, draft.steps.size(), *block, back);
  return true;
}

bool move_home(const Graph& graph, Draft& draft, Random& random) {
  std::vector<BlockId> homes;
  for (BlockId id(0); id.index() < draft.blocks.size(); id = id.next()) {
    if (!draft.blocks[id.index()].offset && draft.blocks[id.index()].tier == 0 && !is_made_in_parts(draft, id))
      homes.push_back(id);
  }
  if (homes.empty()) return false;
  const BlockId home = homes[random() % homes.size()];
  const BufferId buffer = draft.blocks[home.index()].buffer;
  const std::vector<std::size_t> uses = steps_with(draft, home);
  draft.blocks[home.index()].tier = any_tier(draft, random);
  bool full = !graph.version(graph.buffer(buffer).versions[0]).writer;  // has content that must be loaded
  std::size_t arrived = 0;                                              // and from here on it is in its home
  for (std::size_t i = 0; i < uses.size();) {
    const std::size_t count = between(1, uses.size() - i, random);
    const std::size_t first = uses[i];
    const Block like = draft.blocks[home.index()];
    const BlockId block = add_block(draft, like, 0);
    follow_from(draft, first, uses[i + count - 1] + 1, home, block);
    if (full) {
      const std::size_t wait = between(arrived, first, random);
      add_transfer(draft, home, block, between(arrived, wait, random), wait);
    }
    full = true;
    i += count;
    const std::size_t next = i < uses.size() ? uses[i] : draft.steps.size();
    std::optional<std::size_t> changed;
    for (std::size_t step = first; step < next; ++step) {
      if (writes(draft.steps[step], block)) changed = step;
    }
    if (!changed) continue;
    arrived = between(*changed + 1, next, random);
    add_transfer(draft, block, home, between(*changed + 1, arrived, random), arrived);
  }
  return true;
}

void sort_transfers(Draft& draft, Random& random) {
  std::ranges::shuffle(draft.transfers, random);
  std::ranges::stable_sort(draft.transfers, {}, [&](const Transfer& transfer) {
    const bool stores = transfer.from.index() < draft.blocks.size() && draft.blocks[transfer.from.index()].tier == 0;
    return std::pair(transfer.issue, !stores);
  });
}

std::vector<BufferId> resident_buffers(const Graph& graph) {
  std::vector<BufferId> found;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    if (!graph.buffer(id).planned()) found.push_back(id);
  }
  return found;
}

}  // namespace lowtide
