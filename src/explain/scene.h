// scene.h: a step, and how many bytes are alive at each moment of it.
#pragma once

#include <optional>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/lifetimes.h"
#include "lowtide/order.h"
#include "lowtide/plan.h"

namespace lowtide {

struct Scene {
  Graph graph;  // in which every op runs once
  Order order;
  std::vector<StepIndex> step_of;  // by op
  Lifetimes lives;                 // those of resident buffers too: see below
  std::vector<Bytes> total;        // by step: what is in memory
  std::vector<Bytes> resident;     // by step, of it: what is there between steps too
  StepIndex peak;                  // the first step with the largest total

  // By buffer: the last step up to the peak and the first one after it that use it.
  std::vector<std::optional<StepIndex>> used_before, used_after;

  // By buffer, in their order: the spans of its life in which a plan has it in a tier. Empty: no plan has any there.
  std::vector<std::vector<Life>> away = {};

  bool is_in_memory(BufferId buffer, StepIndex step) const;
  Bytes away_at_peak() const;
  bool is_operand_at_peak(BufferId buffer) const { return used_before[buffer.index()] == peak; }

  // In the order of steps: every buffer that a step reads or writes, by visit(buffer, step).
  template <typename Visit>
  void visit_uses(const Visit& visit) const {
    for (StepIndex step(0); step.index() < order.size(); step = step.next()) {
      const Op op = graph.op(order[step.index()]);
      for (const ValueId read : op.reads) visit(graph.version(graph.value(read).version).buffer, step);
      for (const VersionId write : op.writes) visit(graph.version(write).buffer, step);
    }
  }

  // The largest total, had each buffer no bytes during its span.
  struct Absence {
    BufferId buffer;
    StepIndex begin, end;
  };
  Bytes peak_without(const std::vector<Absence>& absences) const;

  // By step: their bytes together.
  std::vector<Bytes> absent(const std::vector<Absence>& absences) const;
};

// Program order, as eager PyTorch runs it: gradients and outputs that the step makes are alive from then on.
Result<Scene> eager_scene(const Graph& graph);

// A right plan: resident buffers are there throughout, but for what it swaps.
Result<Scene> planned_scene(const Graph& graph, const Plan& plan);

}  // namespace lowtide
