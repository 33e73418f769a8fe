// plan.h: the answer: which op runs at each step, and where every operand lies while it does.
//
// A plan speaks of the original graph only. Each step names the op it runs and, for each of that op's reads and writes,
// the block that stands in for the buffer. A block is a place in the arena for a while:
//
//   graph:  0 make a    1 relu_ a (in place)    2 b = f(a)
//
//   blocks                                        steps
//   0  stands in for a  [0,3)  at offset 0        0  op 0  reads -     writes 0
//   1  stands in for b  [2,3)  at offset 128      1  op 1  reads 0     writes 0    in place: the same block
//                                                 2  op 2  reads 0     writes 1
//
// (Case "in_place" of plan_test.cc, with a of 128 bytes and b of 64.) Block i stands in for buffer i in plans made by
// plan(). Resident buffers have a block too, without an offset.
//
// A plan may let a buffer go and make it again later, in a further block, by running the ops again that make it. The
// first step that names an op is the run that the program has; verify.h says what holds for those that run it again.
//
// Or it moves the buffer out and back. A tier is a memory behind a link: a file, or a device's host. A block may lie in
// a tier, and a transfer copies one block to another, while ops run:
//
//   blocks of a                          transfers
//   0  memory [0,3)  at offset 0         0 -> 1  issued before step 1, waited for before step 3    a store
//   1  tier 1 [1,6)  at offset 0         1 -> 2  issued before step 4, waited for before step 5    a load
//   2  memory [4,6)  at offset 64
//
// A resident buffer may have its home in a tier: then it is in memory only in such blocks. link.h has the clocks.
//
// Or it runs an op in parts, along one of its axes (axis.h), so that what is between two ops is never there whole. A
// step then runs one part, and a block may hold one part of its buffer:
//
//   graph:  0 b = f(a)    1 c = g(b)        each by rows in 2 parts
//
//   blocks                                        steps
//   0  stands in for a          [0,4)             0  op 0, part 0 of 2   reads 0   writes 2
//   1  stands in for c          [1,4)             1  op 1, part 0 of 2   reads 2   writes 1    the first half of c
//   2  holds part 0 of 2 of b   [0,2)             2  op 0, part 1 of 2   reads 0   writes 3
//   3  holds part 1 of 2 of b   [2,4)             3  op 1, part 1 of 2   reads 3   writes 1
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "lowtide/algorithms.h"
#include "lowtide/budget.h"
#include "lowtide/fingerprint.h"
#include "lowtide/graph.h"
#include "lowtide/link.h"
#include "lowtide/lists.h"
#include "lowtide/status.h"
#include "lowtide/units.h"

namespace lowtide {

// One of the parts along an axis; of `count` 1: the whole.
struct Part {
  std::uint32_t index = 0;
  std::uint32_t count = 1;

  bool operator==(const Part&) const = default;
};

struct Block {
  BufferId buffer;              // whose content it holds
  StepIndex begin;              // first step at which its bytes are its own
  StepIndex end;                // first step at which they no longer are
  std::optional<Bytes> offset;  // from the arena's start; none for a resident buffer's home
  std::uint32_t tier = 0;       // 0: memory, where ops can use it; i: the plan's i-th tier, from 1
  Part part = {};               // which bytes of the buffer it holds, those of this part
  Bytes period = {};            // of the parts; 0 if it holds the whole

  // What it takes of a buffer of that size. A count of 0, which no right plan has, counts as 1.
  Bytes bytes_of(Bytes buffer_size) const { return Bytes(buffer_size.count() / (part.count == 0 ? 1 : part.count)); }
};

// How a step runs its op.
struct StepPart {
  std::uint32_t axis = 0;  // of the op's axes; 0 if it runs the whole
  Part part = {};

  bool operator==(const StepPart&) const = default;
};

// A memory behind a link, with an arena of its own.
struct Tier {
  std::string name;
  Link link;
  Bytes arena = {};     // the highest end of any of its blocks
  Bytes resident = {};  // all resident buffers whose home it is
};

// A copy of the content of one block of a buffer to another: a store from memory to a tier, or a load back.
struct Transfer {
  BlockId from;
  BlockId to;
  StepIndex issue;  // begins before this step
  StepIndex wait;   // is over before this step; the number of steps: before the plan ends

  bool operator==(const Transfer&) const = default;
};

// How a plan came about.
struct Provenance {
  std::string order;  // the algorithms' names; with "auto", of the one whose result was taken
  std::string layout;
  std::string version;         // of this library
  std::string recompute = {};  // the algorithm that chose what runs again; none if nothing does
  // What the plan was made for; none if that is not known. verify() refuses a plan that was made for another graph.
  std::optional<Fingerprint> graph = {};
};

struct Plan {
  std::vector<OpId> order;           // by step: the op that runs
  std::vector<StepPart> parts = {};  // by step; empty if every step runs a whole op
  Lists<BlockId> reads;              // by step, parallel to the op's reads
  Lists<BlockId> writes;             // by step, parallel to the op's writes
  std::vector<Bytes> workspaces;     // by step: the offset of the op's workspace; 0 if it has none
  std::vector<Block> blocks;         // by BlockId
  std::vector<Tier> tiers = {};      // beyond memory
  // By issue; before one step stores come before loads. A link takes them in this order.
  std::vector<Transfer> transfers = {};

  Bytes alignment = kAlignment;  // every offset is a multiple of this
  Bytes arena;                   // the highest end of any block or workspace
  Bytes peak;                    // the most bytes of blocks and workspace alive at any step; never more than the arena
  // Proven: no plan that takes no longer and runs the same ops in the same parts has a smaller arena; without reuse,
  // none without it.
  Bytes bound;
  Bytes resident;  // all resident buffers whose home is memory
  Nanos time;      // the sum of the ops' costs, of each as often as it runs, and of what they wait for transfers
  Provenance provenance;

  // How `step` runs its op.
  StepPart part(StepIndex step) const { return parts.empty() ? StepPart() : parts[step.index()]; }

  // The share of the arena that even its fullest step leaves unused.
  double fragmentation() const;

  // How far the arena is above the bound, as a share of the bound: 0 means that no plan has a smaller one.
  double gap() const;
};

// What a search under a budget would choose if it ended now.
struct FoundSoFar {
  Bytes peak;
  Bytes bound;                      // proven: no plan that takes no longer has a smaller peak
  std::optional<double> more_time;  // that running ops again takes, as a share of the step's; none without times
};

// A tier that buffers may leave memory for, where a budget asks for it.
struct Swap {
  std::string name;
  Link link;
  // The resident buffers that may have their home there. Planned ones may leave as they are.
  std::vector<BufferId> may_leave = {};
  Bytes least = Bytes(64 << 10);       // smaller buffers stay
  std::optional<Bytes> capacity = {};  // of the tier
};

// Parameters, gradients and optimizer state that are resident: what a swap may leave with, as far as the graph says.
std::vector<BufferId> kept_between_steps(const Graph& graph);

enum class Parts : std::uint8_t {
  none,   // every op runs in whole
  exact,  // in parts that have the bits of the whole op
  any,    // in any parts: sums have other rounding
};

struct PlanOptions {
  std::string order = "best";   // never worse than "program": where its arena is, that is taken
  std::string layout = "auto";  // the best that is found with some work: see lay_out() in layout.h
  bool reuse = true;            // results may be made in the bytes of operands: see Reuse in graph.h
  // What may run again where a budget asks for it (see recompute.h), or "none": then nothing does, regions or not.
  std::string recompute = "auto";
  // Whether ops may run in parts (see axis.h) where a budget asks for it.
  Parts parts = Parts::exact;
  // Algorithms besides ours, to be asked for by name: the caller's own, or those of published.h.
  Algorithms others = {};
  // Covers resident bytes and arena. A share is of eager_bytes().
  std::optional<Budget> memory_budget = {};
  // What may leave memory, and how, where the memory budget asks for it.
  std::optional<Swap> swap = {};
  // For the sum of the ops' costs. Without a memory budget, the smallest plan within it is looked for.
  std::optional<Nanos> latency_budget = {};
  // Of every offset: a property of the memory that the plan is for.
  Bytes alignment = kAlignment;
  // How much work searches may do: 2 for twice as much as usual. The plan is still a function of graph and options.
  double effort = 1.0;
  std::size_t threads = 1;  // changes how long it takes, never the plan
  // Besides: the best that was found by then. The plan is then no longer a function of graph and options alone.
  std::optional<std::chrono::milliseconds> time_limit = {};
  // Told now and then, on the thread that plans, what the search under a budget has found. No plan depends on it.
  std::function<void(const FoundSoFar&)> on_progress = {};
  // Ends that search when it is asked to: there is no plan then.
  std::stop_token stop = {};
};

// Plans `graph`. What is returned has passed verify() and keeps the budgets. Pure and deterministic.
//
// Every op runs once, unless a budget asks for more: where that needs more than the memory budget, the fastest plan
// within it is taken in which some ops run again; and with a latency budget alone, the smallest plan within that.
// Ops that have axes run in parts where no other plan keeps the memory budget.
// What regions ask for (see Op in graph.h) runs again, and bounds are those of a graph that says so; but where a budget
// is kept only without the regions, or the smallest plan is, they ask for nothing.
//
// Errors: E501 unknown algorithm; E505 an alignment of 0 or an effort that is no number above 0; E1xx and E2xx if the
// answer of one of `others` is wrong; E503 a share outside (0, 1]; E301 and E302 infeasible budgets, with bound, step
// and culprits; E405 if it was asked to stop.
Result<Plan> plan(const Graph& graph, const PlanOptions& options = {});

// Whether all parts that a plan runs have the bits of their whole ops, as the graph says. The plan has passed verify().
bool is_exact(const Graph& graph, const Plan& plan);

// What eager PyTorch needs: resident bytes and the peak of program order, in which no result reuses an operand's bytes
// and regions run again, as checkpoints do. Gradients are resident, planned or not: eager leaves them in `.grad`. All
// shares are of this.
Result<Bytes> eager_bytes(const Graph& graph);

}  // namespace lowtide
