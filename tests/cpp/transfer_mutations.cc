#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "mutations.h"
#include "swaps.h"

namespace lowtide {
namespace {

// One whose blocks there are.
Transfer* any_transfer(Draft& draft, Random& random) {
  std::vector<Transfer*> found;
  for (Transfer& transfer : draft.transfers) {
    if (std::max(transfer.from, transfer.to).index() < draft.blocks.size()) found.push_back(&transfer);
  }
  return found.empty() ? nullptr : found[random() % found.size()];
}

// A block for which `wanted` holds.
template <typename Wanted>
std::optional<BlockId> any_block(const Draft& draft, Random& random, Wanted wanted) {
  std::vector<BlockId> found;
  for (std::size_t i = 0; i < draft.blocks.size(); ++i) {
    if (wanted(draft.blocks[i])) found.emplace_back(i);
  }
  if (found.empty()) return std::nullopt;
  return found[random() % found.size()];
}

void shift(StepIndex& step, Random& random) {
  const std::size_t by = 1 + random() % 2;
  step = StepIndex(chance(random, 0.5) ? step.index() + by : step.index() - std::min(step.index(), by));
}

void maybe_sort(Draft& draft, Random& random) {
  if (chance(random, 0.9)) sort_transfers(draft, random);
}

bool shift_issue(const Graph& graph, Draft& draft, Random& random) {
  Transfer* const transfer = any_transfer(draft, random);
  if (transfer == nullptr) return false;
  shift(transfer->issue, random);
  maybe_sort(draft, random);
  maybe_restate(graph, draft, random);
  return true;
}

bool shift_wait(const Graph& graph, Draft& draft, Random& random) {
  Transfer* const transfer = any_transfer(draft, random);
  if (transfer == nullptr) return false;
  shift(transfer->wait, random);
  maybe_restate(graph, draft, random);
  return true;
}

// Lives follow: only what is in flight can be disturbed.
bool stretch_transfer(const Graph& graph, Draft& draft, Random& random) {
  Transfer* const transfer = any_transfer(draft, random);
  if (transfer == nullptr) return false;
  const std::size_t steps = draft.steps.size();
  if (chance(random, 0.6)) transfer->issue = StepIndex(random() % (transfer->issue.index() + 1));
  if (chance(random, 0.6)) transfer->wait = StepIndex(std::min(steps, transfer->wait.index() + random() % 4));
  maybe_sort(draft, random);
  follow(graph, draft, random);
  return true;
}

bool turn_round(const Graph& graph, Draft& draft, Random& random) {
  Transfer* const transfer = any_transfer(draft, random);
  if (transfer == nullptr) return false;
  std::swap(transfer->from, transfer->to);
  maybe_sort(draft, random);
  if (chance(random, 0.5)) follow(graph, draft, random);
  return true;
}

bool drop_transfer(const Graph& graph, Draft& draft, Random& random) {
  const Transfer* const transfer = any_transfer(draft, random);
  if (transfer == nullptr) return false;
  draft.transfers.erase(draft.transfers.begin() + (transfer - draft.transfers.data()));
  maybe_restate(graph, draft, random);
  return true;
}

// Once more, mostly at another time.
bool repeat_transfer(const Graph& graph, Draft& draft, Random& random) {
  const Transfer* const transfer = any_transfer(draft, random);
  if (transfer == nullptr) return false;
  Transfer again = *transfer;
  if (chance(random, 0.8)) {
    again.issue = StepIndex(random() % (draft.steps.size() + 1));
    again.wait = StepIndex(again.issue.index() + random() % (draft.steps.size() + 1 - again.issue.index()));
  }
  draft.transfers.push_back(again);
  maybe_sort(draft, random);
  follow(graph, draft, random);
  return true;
}

// Between any two blocks, mostly of one buffer.
bool add_transfer(const Graph& graph, Draft& draft, Random& random) {
  const BlockId from(random() % draft.blocks.size());
  const BufferId buffer = draft.blocks[from.index()].buffer;
  const bool anywhere = chance(random, 0.05);
  const std::uint32_t tier = draft.blocks[from.index()].tier;
  const auto to = any_block(draft, random, [&](const Block& block) {
    return anywhere || (block.buffer == buffer && (block.tier == 0) != (tier == 0));
  });
  if (!to) return false;
  const StepIndex issue(random() % (draft.steps.size() + 1));
  const StepIndex wait(issue.index() + random() % (draft.steps.size() + 1 - issue.index()));
  draft.transfers.push_back({from, *to, issue, wait});
  maybe_sort(draft, random);
  follow(graph, draft, random);
  return true;
}

// A load arrives where an op makes the same content, around the time when it does.
bool load_over_result(const Graph& graph, Draft& draft, Random& random) {
  const std::size_t at = random() % draft.steps.size();
  const DraftStep& step = draft.steps[at];
  if (step.writes.empty()) return false;
  const BlockId to = step.writes[random() % step.writes.size()];
  const BufferId buffer = draft.blocks[to.index()].buffer;
  const auto from =
      any_block(draft, random, [&](const Block& block) { return block.buffer == buffer && block.tier != 0; });
  if (!from) return false;
  const StepIndex issue(at - std::min<std::size_t>(at, random() % 3));
  const StepIndex wait(std::min(draft.steps.size(), at + random() % 3));
  draft.transfers.push_back({*from, to, issue, std::max(issue, wait)});
  sort_transfers(draft, random);
  follow(graph, draft, random);
  return true;
}

// A second slot takes the content too, and nobody loads it.
bool store_twice(const Graph& graph, Draft& draft, Random& random) {
  const Transfer* const store = any_transfer(draft, random);
  if (store == nullptr || draft.blocks[store->from.index()].tier != 0) return false;
  Transfer second = *store;
  const BufferId buffer = draft.blocks[second.from.index()].buffer;
  if (!graph.buffer(buffer).planned()) return false;
  const auto tier = static_cast<std::uint32_t>(1 + random() % draft.tiers.size());
  second.to = BlockId(draft.blocks.size());
  if (chance(random, 0.5)) shift(second.wait, random);
  draft.blocks.push_back({buffer, StepIndex(0), StepIndex(draft.steps.size()), Bytes(0), tier});
  draft.transfers.push_back(second);
  sort_transfers(draft, random);
  follow(graph, draft, random);
  return true;
}

bool redirect_transfer(const Graph& graph, Draft& draft, Random& random) {
  Transfer* const transfer = any_transfer(draft, random);
  if (transfer == nullptr) return false;
  BlockId& end = chance(random, 0.5) ? transfer->from : transfer->to;
  const BlockId old = end;
  const BufferId buffer = draft.blocks[old.index()].buffer;
  const bool anywhere = chance(random, 0.1);
  const auto fresh = any_block(draft, random, [&](const Block& block) { return anywhere || block.buffer == buffer; });
  end = chance(random, 0.05) ? BlockId(draft.blocks.size() + random() % 2) : *fresh;
  if (end == old) return false;
  if (end.index() < draft.blocks.size()) maybe_sort(draft, random);
  if (chance(random, 0.5)) maybe_restate(graph, draft, random);
  return true;
}

bool reorder_transfers(const Graph& graph, Draft& draft, Random& random) {
  Transfer* const a = any_transfer(draft, random);
  Transfer* const b = any_transfer(draft, random);
  if (a == b) return false;
  if (chance(random, 0.5)) {
    sort_transfers(draft, random);
  } else {
    std::swap(*a, *b);
  }
  maybe_restate(graph, draft, random);
  return true;
}

bool change_tier(const Graph& graph, Draft& draft, Random& random) {
  const auto block = any_block(draft, random, [&](const Block& b) { return b.tier != 0 || chance(random, 0.3); });
  if (!block) return false;
  std::uint32_t& tier = draft.blocks[block->index()].tier;
  const std::uint32_t old = tier;
  tier = static_cast<std::uint32_t>(random() % (draft.tiers.size() + 1));
  if (chance(random, 0.05)) tier = static_cast<std::uint32_t>(draft.tiers.size() + 1);
  if (chance(random, 0.05)) tier = std::numeric_limits<std::uint32_t>::max();
  if (tier == old) return false;
  if (chance(random, 0.5)) pack_again(graph, draft, random);
  maybe_restate(graph, draft, random);
  return true;
}

bool move_slot(const Graph& graph, Draft& draft, Random& random) {
  const auto slot = any_block(draft, random, [&](const Block& block) {
    return block.offset && block.tier != 0 && block.tier <= draft.tiers.size();
  });
  if (!slot) return false;
  Block& block = draft.blocks[slot->index()];
  block.offset = Bytes(64 * (random() % (draft.tiers[block.tier - 1].arena.count() / 64 + 3)));
  if (chance(random, 0.1)) *block.offset += Bytes(1 + random() % 63);
  if (chance(random, 0.05)) block.offset = Bytes(~std::uint64_t{63});
  if (chance(random, 0.95)) maybe_restate(graph, draft, random);
  return true;
}

// Of a slot, or of a block in memory that is stored or loaded.
bool change_life(const Graph& graph, Draft& draft, Random& random) {
  const Transfer* const transfer = any_transfer(draft, random);
  if (transfer == nullptr) return false;
  Block& block = draft.blocks[(chance(random, 0.5) ? transfer->from : transfer->to).index()];
  if (!block.offset && chance(random, 0.9)) return false;
  shift(chance(random, 0.5) ? block.begin : block.end, random);
  maybe_restate(graph, draft, random);
  return true;
}

bool change_link(const Graph& graph, Draft& draft, Random& random) {
  Link& link = draft.tiers[random() % draft.tiers.size()].link;
  Bytes& rate = chance(random, 0.5) ? link.store_per_second : link.load_per_second;
  constexpr std::array kRates = {0ULL, 1ULL, 3ULL, 1'000'000'000ULL, 333'333'333ULL, ~0ULL};
  switch (random() % 4) {
    case 0:
      link.duplex = !link.duplex;
      break;
    case 1:
      link.latency = chance(random, 0.2) ? Nanos::max() : Nanos(random() % 300);
      break;
    default:
      rate = Bytes(kRates[random() % kRates.size()]);
  }
  maybe_restate(graph, draft, random);
  return true;
}

bool misstate_tier(const Graph&, Draft& draft, Random& random) {
  Tier& tier = draft.tiers[random() % draft.tiers.size()];
  Bytes& figure = chance(random, 0.6) ? tier.arena : tier.resident;
  const Bytes before = figure;
  const Bytes change(1 + random() % 130);
  figure = chance(random, 0.5) ? figure + change : figure - change;
  return figure != before;
}

// A home gets an offset, or another tier; or a slot loses its own.
bool confuse_home(const Graph& graph, Draft& draft, Random& random) {
  const auto block = any_block(draft, random, [](const Block& b) { return !b.offset || b.tier != 0; });
  if (!block) return false;
  Block& changed = draft.blocks[block->index()];
  if (changed.offset) {
    changed.offset.reset();
  } else if (chance(random, 0.4)) {
    changed.offset = Bytes(0);
  } else {
    changed.tier = static_cast<std::uint32_t>(random() % (draft.tiers.size() + 1));
  }
  maybe_restate(graph, draft, random);
  return true;
}

// An op is given another block of an operand's buffer, wherever that is.
bool use_elsewhere(const Graph& graph, Draft& draft, Random& random) {
  DraftStep& step = draft.steps[random() % draft.steps.size()];
  if (step.reads.empty()) return false;
  const BlockId old = step.reads[random() % step.reads.size()];
  const BufferId buffer = draft.blocks[old.index()].buffer;
  const auto other = any_block(draft, random, [&](const Block& block) { return block.buffer == buffer; });
  if (!other || *other == old) return false;
  std::ranges::replace(step.reads, old, *other);
  std::ranges::replace(step.writes, old, *other);
  if (chance(random, 0.6)) follow(graph, draft, random);
  return true;
}

// Blocks that nobody uses, of resident buffers at home in a tier too.
bool spare_anywhere(const Graph& graph, Draft& draft, Random& random) {
  Block block = draft.blocks[random() % draft.blocks.size()];
  block.begin = StepIndex(random() % draft.steps.size());
  block.end = StepIndex(block.begin.index() + 1 + random() % (draft.steps.size() - block.begin.index()));
  block.offset = Bytes(64 * (random() % 40));
  block.tier = static_cast<std::uint32_t>(random() % (draft.tiers.size() + 1));
  draft.blocks.push_back(block);
  if (chance(random, 0.5)) pack_again(graph, draft, random);
  maybe_restate(graph, draft, random);
  return true;
}

bool swap_another(const Graph& graph, Draft& draft, Random& random) {
  const bool swapped = chance(random, 0.7) ? swap_out(graph, draft, random) : move_home(graph, draft, random);
  if (!swapped) return false;
  sort_transfers(draft, random);
  settle(graph, draft, random);
  return true;
}

constexpr std::array kTransferMutations = {
    Mutation{"shift issue", 5, shift_issue},
    Mutation{"shift wait", 5, shift_wait},
    Mutation{"stretch transfer", 8, stretch_transfer},
    Mutation{"turn round", 1, turn_round},
    Mutation{"drop transfer", 2, drop_transfer},
    Mutation{"repeat transfer", 6, repeat_transfer},
    Mutation{"add transfer", 8, add_transfer},
    Mutation{"load over result", 4, load_over_result},
    Mutation{"store twice", 4, store_twice},
    Mutation{"redirect transfer", 4, redirect_transfer},
    Mutation{"reorder transfers", 4, reorder_transfers},
    Mutation{"change tier", 3, change_tier},
    Mutation{"move slot", 4, move_slot},
    Mutation{"change life", 6, change_life},
    Mutation{"change link", 3, change_link},
    Mutation{"misstate tier", 1, misstate_tier},
    Mutation{"confuse home", 3, confuse_home},
    Mutation{"use elsewhere", 5, use_elsewhere},
    Mutation{"spare anywhere", 2, spare_anywhere},
    Mutation{"swap another", 6, swap_another},
};

}  // namespace

std::span<const Mutation> transfer_mutations() {
  return kTransferMutations;
}

}  // namespace lowtide
