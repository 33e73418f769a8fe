// dependencies.h: which ops must run before which.
//
// An op depends on another for one of six reasons; each pair is listed once, whatever the reasons:
//
//   it reads a version that the other writes             it changes in place a version that the other writes
//   it overwrites a version that the other reads         an explicit edge says so
//   both are random, the other comes first               both are collectives, the other comes first
//
// Linear in the graph: an op that overwrites a version depends on each reader of it, and every read is counted once.
#pragma once

#include "lowtide/graph.h"
#include "lowtide/lists.h"

namespace lowtide {

struct Dependencies {
  Lists<OpId> predecessors;  // by OpId, ascending
  Lists<OpId> successors;    // by OpId, ascending
};

Dependencies dependencies(const Graph& graph);

}  // namespace lowtide
