// lifetimes.h: how long each buffer must live in a given order, and how many bytes that keeps alive.
//
// A planned buffer lives from the step that first writes it to just after the step that last touches it; a kept one to
// the end. Lives are half-open [begin, end). An op's operands, results and workspace are all alive while it runs:
//
//   step          0 make a   1 b = f(a)   2 c = g(b)   3 sync        a [0,2)  100 bytes
//   a             =========  ===========                             b [1,3)  200
//   b                        ===========  ===========                c [2,4)   50, kept
//   c                                     ===========  =======       workspace of step 2: 30
//   live bytes        100        300        280          50          peak 300 at step 1
//
// The same numbers are the case "staircase" of lifetimes_test.cc.
//
// Where an op may make its result in the bytes of an operand (see Reuse in graph.h) and is the last to need that, it
// does: the two lie in one place, and count once while it runs. If f were such an op and b as large as a, 100 bytes
// would be alive at step 1.
#pragma once

#include <span>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/status.h"
#include "lowtide/units.h"

namespace lowtide {

struct Life {
  StepIndex begin;
  StepIndex end;

  auto operator<=>(const Life&) const = default;
};

struct Lifetimes {
  std::vector<Life> lives;       // by BufferId; resident buffers live from the first step to the last
  std::vector<BufferId> places;  // by BufferId: the buffer in whose bytes it lies: the first of those, often itself
  std::vector<Bytes> live;       // by step: planned buffers alive there, and the workspace of its op
  Bytes peak;                    // the most of those
  StepIndex peak_step;           // the first step at which it is reached
};

// Linear in the graph. `order` must run every op once (E201, E202, E203), but need not respect dependencies.
Result<Lifetimes> lifetimes(const Graph& graph, std::span<const OpId> order);

// A bound that needs no order: the most that one op asks for on its own, in planned buffers that it reads or writes and
// in workspace, less what it may reuse. All of that is alive while it runs, so no order of these ops has a smaller
// peak. 300 above, for op 1. Where resident buffers are `away` in a tier, they need a place in memory too while it
// runs.
Bytes operand_bound(const Graph& graph, std::span<const BufferId> away = {});

// The planned buffers with bytes of their own at `step`, by id: an operand whose bytes a result takes over is left out.
std::vector<BufferId> alive_at(const Graph& graph, std::span<const OpId> order, const Lifetimes& lifetimes,
                               StepIndex step);

// Who is alive at `step`: the `count` largest planned buffers and workspaces, largest first, ties by id.
std::vector<Culprit> largest_at(const Graph& graph, std::span<const OpId> order, const Lifetimes& lifetimes,
                                StepIndex step, std::size_t count);

}  // namespace lowtide
