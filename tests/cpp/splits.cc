#include "splits.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "random_graph.h"
#include "swaps.h"

namespace lowtide {
namespace {

using Random = std::mt19937_64;

bool in_parts(const DraftStep& step) {
  return step.part.part.count > 1;
}

bool has_edge(const Graph& graph, OpId op) {
  return std::ranges::any_of(graph.edges(), [&](const Edge& edge) { return edge.before == op || edge.after == op; });
}

// An operand of a step.
struct Use {
  BlockId block;
  bool written;
  Bytes period;  // 0: not cut
};

std::vector<Use> uses_of(const Graph& graph, const DraftStep& step) {
  std::vector<Use> uses;
  // Of a mutant, the axis may be one that its op does not have.
  const bool known = step.op.index() < graph.num_ops() && step.part.axis < graph.num_axes(step.op);
  const Axis axis = in_parts(step) && known ? graph.axis(step.op, step.part.axis) : Axis();
  const bool parts = axis.reads.size() == step.reads.size() && axis.writes.size() == step.writes.size();
  for (std::size_t i = 0; i < step.reads.size(); ++i) {
    uses.push_back({step.reads[i], false, parts ? axis.reads[i] : Bytes(0)});
  }
  for (std::size_t i = 0; i < step.writes.size(); ++i) {
    uses.push_back({step.writes[i], true, parts ? axis.writes[i] : Bytes(0)});
  }
  return uses;
}

bool are_other_parts(const DraftStep& a, const DraftStep& b) {
  return in_parts(a) && a.part.part.count == b.part.part.count && a.part.part.index != b.part.part.index;
}

// Nobody can tell which of them ran first.
bool may_swap(const Graph& graph, const DraftStep& a, const DraftStep& b) {
  const OpFlags flags_a = graph.op(a.op).flags;
  const OpFlags flags_b = graph.op(b.op).flags;
  if ((flags_a.random && flags_b.random) || (flags_a.collective && flags_b.collective)) return false;
  if (has_edge(graph, a.op) && has_edge(graph, b.op)) return false;
  if (a.op == b.op && (a.part.axis != b.part.axis || !are_other_parts(a, b))) return false;
  for (const Use& use : uses_of(graph, a)) {
    for (const Use& other : uses_of(graph, b)) {
      if (use.block != other.block || (!use.written && !other.written)) continue;
      if (use.period == Bytes(0) || use.period != other.period || !are_other_parts(a, b)) return false;
    }
  }
  return true;
}

// Steps change places with neighbours, mostly so that lower parts come first.
void mix_steps(const Graph& graph, Draft& draft, Random& random) {
  if (draft.steps.size() < 2) return;
  const bool by_part = random() % 3 != 0;
  for (std::size_t tries = random() % (12 * draft.steps.size()); tries > 0; --tries) {
    const std::size_t at = random() % (draft.steps.size() - 1);
    DraftStep& a = draft.steps[at];
    DraftStep& b = draft.steps[at + 1];
    if (by_part && random() % 8 != 0 && a.part.part.index <= b.part.part.index) continue;
    if (may_swap(graph, a, b)) std::swap(a, b);
  }
}

// How many operands other steps cut in the same way.
std::size_t count_alike(const Graph& graph, const Draft& draft, const DraftStep& step) {
  std::size_t alike = 0;
  for (const Use& use : uses_of(graph, step)) {
    alike += use.period != Bytes(0) && std::ranges::any_of(draft.steps, [&](const DraftStep& other) {
               return other.part.part.count == step.part.part.count &&
                      std::ranges::any_of(uses_of(graph, other), [&](const Use& there) {
                        return there.block == use.block && there.period == use.period;
                      });
             });
  }
  return alike;
}

// Results of parts are made where operands lie that die there, as far as nobody else does.
void reuse_places(const Graph& graph, Draft& draft) {
  const std::vector<Block> derived = [&] {
    Draft other = draft;
    derive_lives(graph, other);
    return other.blocks;
  }();
  for (StepIndex at(0); at.index() < draft.steps.size(); at = at.next()) {
    const DraftStep& step = draft.steps[at.index()];
    const std::vector<Use> uses = uses_of(graph, step);
    for (const Use& from : uses) {
      for (const Use& to : uses) {
        Block& old = draft.blocks[from.block.index()];
        Block& fresh = draft.blocks[to.block.index()];
        const bool may = std::ranges::count(graph.op(step.op).reuses, Reuse{old.buffer, fresh.buffer}) > 0;
        if (!may || from.written || !to.written || old.part.count < 2 || old.part != fresh.part) continue;
        if (old.period != fresh.period || derived[from.block.index()].end != at.next()) continue;
        if (derived[to.block.index()].begin != at || old.tier != 0) continue;
        const Bytes end = *old.offset + size_of(graph, old);
        bool free = true;
        for (const Block& block : draft.blocks) {
          const bool meets = block.begin < fresh.end && at < block.end && block.offset && block.tier == 0 &&
                             *block.offset < end && *old.offset < *block.offset + size_of(graph, block);
          if (meets && &block != &old && &block != &fresh) free = false;
        }
        for (std::size_t i = at.index(); i < fresh.end.index(); ++i) {
          const Bytes workspace = workspace_of(graph, draft.steps[i]);
          const bool meets = draft.steps[i].workspace < end && *old.offset < draft.steps[i].workspace + workspace;
          if (workspace > Bytes(0) && meets) free = false;
        }
        if (!free || std::ranges::count(draft.transfers, from.block, &Transfer::from) > 0) continue;
        old.end = at.next();
        fresh.begin = at;
        fresh.offset = old.offset;
      }
    }
  }
  restate(graph, draft);
}

}  // namespace

bool split_step(const Graph& graph, Draft& draft, std::uint32_t count, Random& random) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < draft.steps.size(); ++i) {
    const DraftStep& step = draft.steps[i];
    if (!in_parts(step) && graph.num_axes(step.op) > 0 && !has_edge(graph, step.op)) found.push_back(i);
  }
  if (found.empty()) return false;
  // Of some ways at random, one that cuts what others cut alike.
  std::size_t at = 0;
  DraftStep part;
  std::size_t most = 0;
  for (int tries = 0; tries < 12; ++tries) {
    const std::size_t other = found[random() % found.size()];
    DraftStep way = draft.steps[other];
    way.part.axis = static_cast<std::uint32_t>(random() % graph.num_axes(way.op));
    const Axis axis = graph.axis(way.op, way.part.axis);
    way.part.part.count = axis.counts[random() % axis.counts.size()].count;
    const std::size_t alike = 1 + (way.part.part.count == count ? 1 : 0) + 2 * count_alike(graph, draft, way);
    if (alike <= most) continue;
    most = alike;
    at = other;
    part = way;
  }
  const Axis axis = graph.axis(part.op, part.part.axis);
  const bool sums = std::ranges::count(axis.writes, Bytes(0)) > 0;
  std::vector<DraftStep> steps(part.part.part.count, part);
  for (std::uint32_t i = 0; i < steps.size(); ++i) steps[i].part.part.index = i;
  if (!sums && random() % 2 == 0) std::ranges::shuffle(steps, random);
  draft.steps.erase(draft.steps.begin() + static_cast<std::ptrdiff_t>(at));
  draft.steps.insert(draft.steps.begin() + static_cast<std::ptrdiff_t>(at), steps.begin(), steps.end());
  return true;
}

bool split_block(const Graph& graph, Draft& draft, Random& random) {
  std::vector<std::pair<BlockId, std::pair<Bytes, std::uint32_t>>> found;
  for (BlockId id(0); id.index() < draft.blocks.size(); id = id.next()) {
    const Block& block = draft.blocks[id.index()];
    const Buffer buffer = graph.buffer(block.buffer);
    if (!buffer.planned() || buffer.kept || block.tier != 0 || block.part.count != 1) continue;
    std::optional<std::pair<Bytes, std::uint32_t>> cut;
    bool alike = true;
    bool read = false;
    for (const DraftStep& step : draft.steps) {
      for (const Use& use : uses_of(graph, step)) {
        if (use.block != id) continue;
        const std::pair here(use.period, step.part.part.count);
        alike = alike && use.period != Bytes(0) && cut.value_or(here) == here;
        cut = here;
        read = read || !use.written;
      }
    }
    if (cut && alike) found.insert(found.end(), read ? 8 : 1, {id, *cut});
  }
  if (found.empty()) return false;
  const auto& [whole, cut] = found[random() % found.size()];
  const auto& [period, count] = cut;
  const bool all = random() % 4 != 0;
  for (std::uint32_t i = 1; i < count; ++i) {
    if (!all && random() % 2 == 0) continue;
    Block block = draft.blocks[whole.index()];
    block.part = {i, count};
    block.period = period;
    draft.blocks.push_back(block);
    for (DraftStep& step : draft.steps) {
      if (step.part.part != block.part) continue;
      std::ranges::replace(step.reads, whole, BlockId(draft.blocks.size() - 1));
      std::ranges::replace(step.writes, whole, BlockId(draft.blocks.size() - 1));
    }
  }
  if (all) {
    draft.blocks[whole.index()].part = {0, count};
    draft.blocks[whole.index()].period = period;
  }
  return true;
}

Draft draft_with_parts(const Graph& graph, Random& random) {
  Draft draft = draft_plan(graph, random_order(graph, random), random);
  const auto count = static_cast<std::uint32_t>(2 + random() % 3);
  for (std::size_t i = 1 + random() % 8; i > 0; --i) split_step(graph, draft, count, random);
  mix_steps(graph, draft, random);
  for (std::size_t i = random() % 6; i > 0; --i) split_block(graph, draft, random);
  if (random() % 4 == 0) {
    add_tiers(draft, random);
    for (std::size_t i = 1 + random() % 4; i > 0; --i) swap_out(graph, draft, random);
    if (random() % 2 == 0) move_home(graph, draft, random);
    sort_transfers(draft, random);
  }
  settle(graph, draft, random);
  if (random() % 4 != 0) reuse_places(graph, draft);
  return draft;
}

}  // namespace lowtide
