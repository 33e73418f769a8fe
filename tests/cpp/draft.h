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
};

struct Draft {
  std::vector<DraftStep> steps;
  std::vector<Block> blocks;
  Bytes arena, peak, bound, resident;
  Nanos time;
};

// `order` with some ops run again, blocks of which some live longer than they must, and a packing that may leave holes.
Draft draft_plan(const Graph& graph, const std::vector<OpId>& order, std::mt19937_64& random);

Plan finish(const Draft& draft);

// Each planned block lives from its first use to its last, or to the end if its buffer is kept. Unused blocks stay as
// they are.
void derive_lives(const Graph& graph, Draft& draft);

// New offsets for every planned block and workspace.
void pack_again(const Graph& graph, Draft& draft, std::mt19937_64& random);

// States the figures that the draft has now.
void restate(const Graph& graph, Draft& draft);

}  // namespace lowtide
