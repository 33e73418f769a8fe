// explain.h: who holds the peak of a step, why, and what would lower it.
//
//   peak      15.00 KiB = 2.00 KiB resident + 13.00 KiB of the step
//   at        aten.tanh_backward (net.py:7, in layers.1), step 3 of 6
//   order     program, each tensor until its last use: eager PyTorch, if no variable holds one for longer
//   alive     6 tensors
//
//     8.00 KiB  53.3 %  saved for backward, in use at the peak
//                2 x 4.00 KiB, float32 [1024]
//                made by   aten.tanh (net.py:7, in layers.* (0 to 1))
//                alive     until aten.tanh_backward (net.py:7, in layers.0) at steps 3 to 4
//                recompute 1.00 KiB less with 1 of them, for 1.000 ms more (16.7 % of the operators' time)
//                swap      1.00 KiB less: 0.001 ms of transfers at 16.0 GB/s, unused for 2.000 ms or more
//   ...
//
//   next      each alone; gains do not add up
//     -5.00 KiB  at most: work in chunks, of the batch or of the tokens, at net.py:7: what that operator reads and
//                writes is 9.00 KiB by itself, in any order
//     -1.00 KiB  recompute what ...
//
// (Case "Graph" of explain_test.cc.) Tensors that differ only in the layer that they belong to are one holder. Gains
// are what the peak of the whole step would be lower by, each taken alone: they do not add up.
//
// A graph is explained in program order, each result in bytes of its own and gradients from where they are made, as
// eager PyTorch has it where no variable outlives the last use of its tensor; a plan as it is, with what is resident
// there for the whole step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/plan.h"
#include "lowtide/status.h"
#include "lowtide/units.h"

namespace lowtide {

struct ExplainOptions {
  std::size_t holders = 10;                       // the largest
  Bytes swap_per_second = Bytes(16000000000ULL);  // of a bus to the host, one way at a time
};

// An op at its step.
struct OpPlace {
  StepIndex step;
  std::string name;
  std::string source;
  std::string module;
};

// Dropped before the peak and made again afterwards, by running ops again: all of them that are idle at the peak, or in
// a chain, in which each is made from the one before, all but some that are spread evenly.
struct RecomputeGain {
  std::size_t count;  // that are dropped
  Bytes gain;
  Nanos time;  // of what runs again; 0 if the graph has no times
};

// Moved out after its last use before the peak and back before its next one.
struct SwapGain {
  Bytes gain;
  Nanos transfer;  // of all of its bytes, out and back
  Nanos idle;      // the shortest time between the two uses of any of them; 0 if the graph has no times
};

// Tensors alive at the peak that are alike: made by one line, in layers that differ by a number.
struct Holder {
  // "saved for backward", "gradient", "kept gradient", "temporary of backward", "temporary", "workspace", "parameter",
  // "optimizer state", ...
  std::string kind;
  std::string name;  // of the largest
  std::size_t count;
  Bytes size;     // of all
  Bytes largest;  // of one
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string modules;               // "layers.*: 0 to 3"; one module's path if it is one
  std::optional<OpPlace> made_by;    // none: it is there when the step begins
  std::optional<OpPlace> last_use;   // none: it is there when the step ends
  std::optional<StepIndex> earlier;  // if there are several: when the first of them ends
  bool is_operand;                   // read or written by the op at the peak
  std::string copy_of;               // "bfloat16 logits, alive too": it is that in another dtype
  std::optional<RecomputeGain> recompute;
  std::optional<SwapGain> swap;
};

// What to do, in words, and what it would gain.
struct Advice {
  Bytes gain;
  bool is_bound;  // that is the most that it can gain
  std::string words;
};

struct Explanation {
  std::string order;  // how the steps came about: "program", or the plan's algorithm
  bool is_plan;
  std::size_t steps;
  std::optional<OpPlace> at;  // none: there are no ops
  Bytes total;                // at the peak
  Bytes resident;             // of it: parameters, state, the batch, what the caller keeps
  Bytes away;                 // besides: what a plan has in tiers at that moment
  std::size_t alive;          // tensors there
  std::size_t groups;         // of tensors alike
  bool has_times;
  Nanos time;                    // of all steps
  std::optional<Bytes> planned;  // resident bytes and arena of the plan that plan() makes; none for a plan of its own
  Bytes operands;                // planned bytes that the op at the peak reads and writes
  Bytes without_operands;        // the largest total without those: splitting the op gains no more than that
  std::vector<Holder> holders;   // largest first
  std::vector<Advice> next;      // what to do about it
  Bytes swap_per_second;
};

// As eager PyTorch runs it.
Result<Explanation> explain(const Graph& graph, const ExplainOptions& options = {});

// E2xx if the plan is not right for the graph.
Result<Explanation> explain(const Graph& graph, const Plan& plan, const ExplainOptions& options = {});

// The picture above.
std::string summary(const Explanation& explanation);

}  // namespace lowtide
