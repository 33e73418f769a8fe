#include "draft.h"

#include <algorithm>

#include "lowtide/layout.h"
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
  derive_lives(graph, draft);
  for (Block& block : draft.blocks) {
    if (!block.offset) continue;
    const std::size_t left = draft.steps.size() - block.end.index();
    if (random() % 4 == 0) block.begin = StepIndex(random() % (block.begin.index() + 1));
    if (random() % 4 == 0) block.end = StepIndex(block.end.index() + random() % (left + 1));
  }
  pack_again(graph, draft, random);
  restate(graph, draft);
  return draft;
}

Plan finish(const Draft& draft) {
  Plan plan;
  for (const DraftStep& step : draft.steps) {
    plan.order.push_back(step.op);
    plan.reads.add(step.reads);
    plan.writes.add(step.writes);
    plan.workspaces.push_back(step.workspace);
  }
  plan.blocks = draft.blocks;
  plan.arena = draft.arena;
  plan.peak = draft.peak;
  plan.bound = draft.bound;
  plan.resident = draft.resident;
  plan.time = draft.time;
  return plan;
}

void derive_lives(const Graph& graph, Draft& draft) {
  const StepIndex last(draft.steps.size());
  for (BlockId id(0); id.index() < draft.blocks.size(); id = id.next()) {
    Block& block = draft.blocks[id.index()];
    if (!graph.buffer(block.buffer).planned()) {
      block.end = last;
      continue;
    }
    const auto uses = [&](const DraftStep& step) {
      return std::ranges::count(step.reads, id) + std::ranges::count(step.writes, id) > 0;
    };
    const auto first_use = std::ranges::find_if(draft.steps, uses);
    if (first_use == draft.steps.end()) continue;
    const auto last_use = std::find_if(draft.steps.rbegin(), draft.steps.rend(), uses);
    block.begin = StepIndex(static_cast<std::size_t>(first_use - draft.steps.begin()));
    block.end =
        graph.buffer(block.buffer).kept ? last : StepIndex(static_cast<std::size_t>(draft.steps.rend() - last_use));
  }
}

void pack_again(const Graph& graph, Draft& draft, std::mt19937_64& random) {
  const bool tight = random() % 2 == 0;
  const auto padded = [&](Bytes size) { return tight ? size : size + Bytes(random() % 150); };
  std::vector<LayoutItem> items;
  for (const Block& block : draft.blocks)
    items.push_back({block.begin, block.end, padded(graph.buffer(block.buffer).size)});
  for (StepIndex step(0); step.index() < draft.steps.size(); step = step.next()) {
    items.push_back({step, step.next(), padded(graph.op(draft.steps[step.index()].op).workspace)});
  }
  for (std::size_t i = 0; i < draft.blocks.size(); ++i) {
    if (!draft.blocks[i].offset) items[i].size = Bytes(0);
  }
  const Layout layout = unwrap(lay_out(items, {.algorithm = "greedy_by_size"})).layout;
  for (std::size_t i = 0; i < draft.blocks.size(); ++i) {
    if (draft.blocks[i].offset) draft.blocks[i].offset = layout.offsets[i];
  }
  for (std::size_t i = 0; i < draft.steps.size(); ++i)
    draft.steps[i].workspace = layout.offsets[draft.blocks.size() + i];
}

void restate(const Graph& graph, Draft& draft) {
  draft.arena = draft.peak = draft.resident = Bytes(0);
  draft.time = Nanos(0);
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    if (!graph.buffer(id).planned()) draft.resident += graph.buffer(id).size;
  }
  for (StepIndex step(0); step.index() < draft.steps.size(); step = step.next()) {
    const Op op = graph.op(draft.steps[step.index()].op);
    Bytes live = op.workspace;
    if (op.workspace > Bytes(0))
      draft.arena = std::max(draft.arena, draft.steps[step.index()].workspace + op.workspace);
    for (const Block& block : draft.blocks) {
      if (!block.offset || step < block.begin || block.end <= step) continue;
      live += graph.buffer(block.buffer).size;
      draft.arena = std::max(draft.arena, *block.offset + graph.buffer(block.buffer).size);
    }
    for (const Block& from : draft.blocks) {
      const bool taken_over = from.end == step.next() && std::ranges::any_of(draft.blocks, [&](const Block& to) {
                                return to.begin == step && to.offset == from.offset &&
                                       std::ranges::count(op.reuses, Reuse{from.buffer, to.buffer}) > 0;
                              });
      if (taken_over) live -= graph.buffer(from.buffer).size;
    }
    draft.peak = std::max(draft.peak, live);
    draft.time += op.cost;
  }
  draft.bound = draft.peak;
}

}  // namespace lowtide
