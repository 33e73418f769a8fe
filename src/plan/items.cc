#include "plan/items.h"

namespace lowtide {

std::vector<LayoutItem> items_of(const Graph& graph, std::span<const OpId> order, const Lifetimes& lifetimes) {
  std::vector<LayoutItem> items;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Life& life = lifetimes.lives[id.index()];
    if (graph.buffer(id).planned()) items.push_back({life.begin, life.end, graph.buffer(id).size});
  }
  for (StepIndex step(0); step.index() < order.size(); step = step.next()) {
    const Bytes workspace = graph.op(order[step.index()]).workspace;
    if (workspace > Bytes(0)) items.push_back({step, step.next(), workspace});
  }
  return items;
}

}  // namespace lowtide
