// eager.h: what plain PyTorch would do with a graph: run it in program order, and free everything after its last use.
//
//   step    0 h = f(w)    1 g = b(h)    2 update w, s by g        w  parameter, there from the beginning
//   w       ===========   ==========   ===================        h  activation, freed after step 1
//   s                                  ===================        s  optimizer state, made in the first iteration
//   h       ===========   ==========                              g  gradient: until the next iteration zeroes it
//   g                     ==========   ===================  ...
//
// Results have bytes of their own, and an op's workspace is there while it runs. Parameters, buffers and the state of
// the optimizer stay for ever once they are made; gradients that the step makes are let go when the next iteration
// begins. A loop's variables hold on: the next batch is made before the one before it is let go, and so is what the
// step returns or keeps. Requests go through the simulated allocator on the streams of their ops.
#pragma once

#include <cstddef>
#include <optional>

#include "lowtide/caching_allocator.h"
#include "lowtide/graph.h"
#include "lowtide/status.h"
#include "lowtide/units.h"

namespace lowtide {

struct EagerOptions {
  AllocatorSettings allocator = {};
  Bytes capacity = Bytes::max();  // of the device, beside what CUDA itself needs
  std::size_t iterations = 3;     // the first makes the state of the optimizer; the others are alike
};

// Where a device was full.
struct EagerStop {
  std::size_t iteration;
  std::optional<OpId> op;  // none: before the first op, where parameters and the batch are made
  OutOfMemory out_of_memory;
};

struct EagerMemory {
  Bytes resident;  // all that is there for the whole step but gradients; part of what is requested
  AllocatorStats allocator;
  std::optional<EagerStop> stop;  // none: it fits
};

// Whether this is a gradient or an output that the step makes and does not plan. A gradient with content from before is
// none: it is added to, and nobody zeroes it.
bool is_left_by_step(const Graph& graph, const Buffer& buffer);

// E505 for settings that PyTorch refuses. That a device is full is no error: see `stop`.
Result<EagerMemory> run_eager(const Graph& graph, const EagerOptions& options = {});

}  // namespace lowtide
