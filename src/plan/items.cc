#include "plan/items.h"

#include <algorithm>

namespace lowtide {

std::vector<LayoutItem> items_of(const Graph& graph, std::span<const OpId> order, const Lifetimes& lifetimes) {
  std::vector<StepIndex> end(graph.num_buffers(), StepIndex(0));  // by place: when the last of its buffers ends
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    StepIndex& last = end[lifetimes.places[id.index()].index()];
    last = std::max(last, lifetimes.lives[id.index()].end);
  }
  std::vector<LayoutItem> items;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    if (!graph.buffer(id).planned() || lifetimes.places[id.index()] != id) continue;
    items.push_back({lifetimes.lives[id.index()].begin, end[id.index()], graph.buffer(id).size});
  }
  for (StepIndex step(0); step.index() < order.size(); step = step.next()) {
    const Bytes workspace = graph.op(order[step.index()]).workspace;
    if (workspace > Bytes(0)) items.push_back({step, step.next(), workspace});
  }
  return items;
}

}  // namespace lowtide
