// draft.h: a plan in a form that is easy to change.
#pragma once

#include <random>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/plan.h"

namespace lowtide {

struct DraftStep {
  OpId op;
  std::vector<BlockId> reads;
  std::vector<BlockId> writes;
  Bytes workspace;
  StepPart part = {};
};

struct Draft {
  std::vector<DraftStep> steps;
  std::vector<Block> blocks;
  std::vector<Tier> tiers = {};
  std::vector<Transfer> transfers = {};
  Bytes arena, peak, bound, resident;
  Nanos time;
};

// `order` with some ops run again, settled.
Draft draft_plan(const Graph& graph, const std::vector<OpId>& order, std::mt19937_64& random);

// Lives for every block, of which some are longer than they must be, a packing that may leave holes, and the figures.
void settle(const Graph& graph, Draft& draft, std::mt19937_64& random);

Plan finish(const Draft& draft);

// What a step and a block need, in parts or not. Of what cannot be, something.
Bytes workspace_of(const Graph& graph, const DraftStep& step);
Bytes size_of(const Graph& graph, const Block& block);

// Each block with an offset lives from its first use to its last, by ops and transfers; in memory, to the end if its
// buffer is planned and kept, and it is not stored. Unused blocks stay as they are.
void derive_lives(const Graph& graph, Draft& draft);

// New offsets for every block that has one and every workspace.
void pack_again(const Graph& graph, Draft& draft, std::mt19937_64& random);

// States the figures that the draft has now.
void restate(const Graph& graph, Draft& draft);

}  // namespace lowtide
