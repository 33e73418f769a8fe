// recompute.h: a graph in which some ops run again.
//
//   graph                   steps        rewritten                 (case "InPlace" of recompute_test.cc)
//   0  h = linear(x)        0            0  h  = linear(x)
//   1  relu_(h)             1            1  relu_(h)
//   2  y = mul(h)           2            2  y  = mul(h)            h ends here
//   3  z = f(y)             3            3  z  = f(y)
//   4  g(z, h)              0            4  h' = linear(x)
//                           1            5  relu_(h')
//                           4            6  g(z, h')
//
// A repeat makes what it makes in a buffer of its own, and whoever reads afterwards reads what was made last. So the
// rewritten graph runs each of its ops once, and is ordered and laid out like any other. A repeat stays behind the
// first run that comes before it: earlier, it would be for nothing.
#pragma once

#include <span>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/lists.h"
#include "lowtide/plan.h"
#include "lowtide/status.h"

namespace lowtide {

struct Rewritten {
  Graph graph;                      // program order is the order of the steps
  std::vector<OpId> op_of;          // by its op: that of the original
  std::vector<BufferId> buffer_of;  // by its buffer: that of the original; the first ones are the same
  Lists<BufferId> reads;            // by its op: its buffers, parallel to the reads of the original op
  Lists<BufferId> writes;           // the same for the writes
};

// `steps` runs every op, those that may run again (see repeats.h) perhaps several times; each read finds the content
// that it wants. Reads and writes that a repeat leaves out are not in the rewritten graph.
Result<Rewritten> run_again(const Graph& graph, std::span<const OpId> steps);

// A plan of the rewritten graph as one of the original.
Plan plan_of_original(const Graph& graph, const Rewritten& rewritten, const Plan& plan);

}  // namespace lowtide
