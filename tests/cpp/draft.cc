#include "draft.h"

#include <algorithm>
#include <limits>

#include "lowtide/layout.h"
#include "plan_time.h"
#include "repeats.h"
#include "unwrap.h"

namespace lowtide {

Draft draft_plan(const Graph& graph, const std::vector<OpId>& order, std::mt19937_64& random) {
  Draft draft;
  const StepIndex last(order.size());
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    draft.blocks.push_back(
        {id, StepIndex(0), last, graph.buffer(id).planned() ? std::optional(Bytes(0)) : std::nullopt});
  }
  for (const OpId id : order) {
    DraftStep step{id, {}, {}, Bytes(0)};
    for (const ValueId read : graph.op(id).reads) {
      step.reads.emplace_back(graph.version(graph.value(read).version).buffer.index());
    }
    for (const VersionId write : graph.op(id).writes) step.writes.emplace_back(graph.version(write).buffer.index());
    draft.steps.push_back(std::move(step));
  }
  for (std::size_t tries = random() % 6; tries > 0; --tries) add_repeat(graph, draft, random);
  settle(graph, draft, random);
  return draft;
}

void settle(const Graph& graph, Draft& draft, std::mt19937_64& random) {
  derive_lives(graph, draft);
  for (Block& block : draft.blocks) {
    if (!block.offset) continue;
    const std::size_t left = draft.steps.size() - std::min(draft.steps.size(), block.end.index());
    if (random() % 4 == 0) block.begin = StepIndex(random() % (block.begin.index() + 1));
    if (random() % 4 == 0) block.end = StepIndex(block.end.index() + random() % (left + 1));
  }
  pack_again(graph, draft, random);
  restate(graph, draft);
}

Plan finish(const Draft& draft) {
  Plan plan;
  for (const DraftStep& step : draft.steps) {
    plan.order.push_back(step.op);
    plan.reads.add(step.reads);
    plan.writes.add(step.writes);
    plan.workspaces.push_back(step.workspace);
    plan.parts.push_back(step.part);
  }
  if (std::ranges::count(plan.parts, StepPart()) == std::ssize(plan.parts)) plan.parts.clear();
  plan.blocks = draft.blocks;
  plan.tiers = draft.tiers;
  plan.transfers = draft.transfers;
  plan.arena = draft.arena;
  plan.peak = draft.peak;
  plan.bound = draft.bound;
  plan.resident = draft.resident;
  plan.time = draft.time;
  return plan;
}

Bytes workspace_of(const Graph& graph, const DraftStep& step) {
  const PartCount* part = part_count(graph, step.op, step.part);
  return part != nullptr ? part->workspace : graph.op(step.op).workspace;
}

Bytes size_of(const Graph& graph, const Block& block) {
  const Bytes size = graph.buffer(block.buffer).size;
  return block.part.count == 0 ? size : Bytes(size.count() / block.part.count);
}

namespace {

// Grows over every use.
struct Span {
  std::size_t begin = std::numeric_limits<std::size_t>::max();
  std::size_t end = 0;

  void cover(std::size_t from, std::size_t to) {
    begin = std::min(begin, from);
    end = std::max(end, to);
  }
};

Span uses_of(const Draft& draft, BlockId id) {
  Span span;
  for (std::size_t step = 0; step < draft.steps.size(); ++step) {
    const DraftStep& uses = draft.steps[step];
    if (std::ranges::count(uses.reads, id) + std::ranges::count(uses.writes, id) > 0) span.cover(step, step + 1);
  }
  for (const Transfer& transfer : draft.transfers) {
    const std::size_t issue = transfer.issue.index();
    const std::size_t wait = transfer.wait.index();
    const bool stores = transfer.from == id && draft.blocks[id.index()].tier == 0;
    // A store begins before blocks in memory come and go, and ends before that too.
    if (stores) span.cover(issue - std::min<std::size_t>(issue, 1), wait);
    if (!stores && (transfer.from == id || transfer.to == id)) span.cover(issue, wait + 1);
  }
  span.end = std::min(span.end, draft.steps.size());
  return span;
}

}  // namespace

void derive_lives(const Graph& graph, Draft& draft) {
  const StepIndex last(draft.steps.size());
  for (BlockId id(0); id.index() < draft.blocks.size(); id = id.next()) {
    Block& block = draft.blocks[id.index()];
    const Buffer buffer = graph.buffer(block.buffer);
    if (!block.offset && !buffer.planned()) {
      block.end = last;
      continue;
    }
    const Span span = uses_of(draft, id);
    if (span.begin >= span.end) continue;
    block.begin = StepIndex(span.begin);
    const bool stored = std::ranges::count(draft.transfers, id, &Transfer::from) > 0;
    const bool stays = buffer.planned() && buffer.kept && block.tier == 0 && !stored;
    block.end = stays ? last : StepIndex(span.end);
  }
}

void pack_again(const Graph& graph, Draft& draft, std::mt19937_64& random) {
  const bool tight = random() % 2 == 0;
  const auto padded = [&](Bytes size) { return tight ? size : size + Bytes(random() % 150); };
  for (std::uint32_t tier = 0; tier <= draft.tiers.size(); ++tier) {
    std::vector<LayoutItem> items;
    for (const Block& block : draft.blocks) {
      items.push_back({block.begin, block.end, padded(size_of(graph, block))});
      if (!block.offset || block.tier != tier) items.back().size = Bytes(0);
    }
    for (StepIndex step(0); tier == 0 && step.index() < draft.steps.size(); step = step.next()) {
      items.push_back({step, step.next(), padded(workspace_of(graph, draft.steps[step.index()]))});
    }
    const Layout layout = unwrap(lay_out(items, {.algorithm = "greedy_by_size"})).layout;
    for (std::size_t i = 0; i < draft.blocks.size(); ++i) {
      if (draft.blocks[i].offset && draft.blocks[i].tier == tier) draft.blocks[i].offset = layout.offsets[i];
    }
    for (std::size_t i = draft.blocks.size(); i < items.size(); ++i) {
      draft.steps[i - draft.blocks.size()].workspace = layout.offsets[i];
    }
  }
}

void restate(const Graph& graph, Draft& draft) {
  draft.arena = draft.peak = draft.resident = Bytes(0);
  for (Tier& tier : draft.tiers) tier.arena = tier.resident = Bytes(0);
  for (const Block& block : draft.blocks) {
    if (block.tier > draft.tiers.size()) continue;
    const Bytes size = size_of(graph, block);
    Bytes& resident = block.tier == 0 ? draft.resident : draft.tiers[block.tier - 1].resident;
    Bytes& arena = block.tier == 0 ? draft.arena : draft.tiers[block.tier - 1].arena;
    if (!block.offset) resident += size;
    if (block.offset && block.begin < block.end) arena = std::max(arena, *block.offset + size);
  }
  for (StepIndex step(0); step.index() < draft.steps.size(); step = step.next()) {
    const Op op = graph.op(draft.steps[step.index()].op);
    const Bytes workspace = workspace_of(graph, draft.steps[step.index()]);
    Bytes live = workspace;
    if (workspace > Bytes(0)) draft.arena = std::max(draft.arena, draft.steps[step.index()].workspace + workspace);
    const auto in_memory = [](const Block& block) { return block.offset && block.tier == 0; };
    for (const Block& block : draft.blocks) {
      if (in_memory(block) && block.begin <= step && step < block.end) live += size_of(graph, block);
    }
    for (const Block& from : draft.blocks) {
      const bool taken_over =
          in_memory(from) && from.end == step.next() && std::ranges::any_of(draft.blocks, [&](const Block& to) {
            return in_memory(to) && to.begin == step && to.offset == from.offset &&
                   size_of(graph, to) == size_of(graph, from) &&
                   std::ranges::count(op.reuses, Reuse{from.buffer, to.buffer}) > 0;
          });
      if (taken_over) live -= size_of(graph, from);
    }
    draft.peak = std::max(draft.peak, live);
  }
  draft.bound = draft.peak;
  draft.time = time_of(graph, finish(draft));
}

}  // namespace lowtide
