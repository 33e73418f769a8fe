// parts.h: a graph in which some ops run in parts, as a plan may let them (axis.h).
//
//   graph                split: ops 1 and 2, by rows, in 2 parts      divided        (case "Rows" of parts_test.cc)
//   0  a = f(x)                                                       0  a    = f(x)
//   1  b = g(a)                                                       1  b'   = g(a)      the first half of b
//   2  c = h(b)                                                       2  c    = h(b')     of c, its first half
//   3  d = k(c)                                                       3  b''  = g(a)      the second half of b
//                                                                     4  c    = h(b'')    changed in place
//                                                                     5  d    = k(c)
//
// What only the ops of one split use, all of them in the same parts, becomes a buffer for each part: of b, one half is
// there at a time. Everything else stays whole and is written part by part. So the divided graph runs each of its ops
// once, and is ordered, traded and laid out like any other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/plan.h"
#include "lowtide/status.h"

namespace lowtide {

// An op, and the axis along which it is cut.
struct CutOp {
  OpId op;
  std::uint32_t axis = 0;

  bool operator==(const CutOp&) const = default;
};

// Ops that run in parts together: all of them for the first part, then for the second, and so on.
struct Split {
  std::vector<CutOp> ops;  // in program order
  std::uint32_t count = 0;

  bool operator==(const Split&) const = default;
};

struct Divided {
  Graph graph;
  std::vector<OpId> op_of;          // by its op: that of the original
  std::vector<StepPart> part_of;    // by its op: which part of it
  std::vector<BufferId> buffer_of;  // by its buffer: that of the original; the first ones are the same
  std::vector<Part> held;           // by its buffer: which part of that
  std::vector<Bytes> period;        // by its buffer: of those parts
};

// E111 if a split cannot be: an op is in two, or has no such axis or number of parts, or is named in an edge; what one
// op of a split writes, another reads or writes in other parts, or a sum is read that is not complete; or another op
// would have to run between the parts.
Result<Divided> run_in_parts(const Graph& graph, std::span<const Split> splits);

// A plan of the divided graph as one of the original.
Plan plan_of_whole(const Graph& graph, const Divided& divided, const Plan& plan);

}  // namespace lowtide
