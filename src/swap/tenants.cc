#include "swap/tenants.h"

#include <utility>

namespace lowtide {

std::vector<bool> movable(const Graph& graph, std::span<const BufferId> may_leave, Bytes least) {
  std::vector<bool> leaves(graph.num_buffers());
  for (const BufferId id : may_leave) leaves[id.index()] = !graph.buffer(id).planned();
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const Op op = graph.op(id);
    if (!op.flags.may_skip_updates) continue;
    for (const VersionId write : op.writes) leaves[graph.version(write).buffer.index()] = false;
  }
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    leaves[id.index()] = (leaves[id.index()] || buffer.planned()) && buffer.size >= least;
  }
  return leaves;
}

Tenants tenants_of(const Graph& graph, std::span<const OpId> order, std::span<const BufferId> may_leave, Bytes least) {
  const std::vector<bool> leaves = movable(graph, may_leave, least);
  std::vector<std::vector<TenantUse>> uses(graph.num_buffers());
  const auto use = [&](BufferId buffer, std::size_t step, bool writes) {
    if (!leaves[buffer.index()]) return;
    std::vector<TenantUse>& known = uses[buffer.index()];
    if (known.empty() || known.back().step != step) known.push_back({step, false});
    known.back().writes |= writes;
  };
  for (std::size_t step = 0; step < order.size(); ++step) {
    const Op op = graph.op(order[step]);
    for (const ValueId read : op.reads) use(graph.version(graph.value(read).version).buffer, step, false);
    for (const VersionId write : op.writes) use(graph.version(write).buffer, step, true);
  }
  Tenants tenants;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    const std::vector<TenantUse>& known = uses[id.index()];
    if (known.size() < (buffer.planned() ? 2U : 1U)) continue;
    tenants.buffer.push_back(id);
    tenants.size.push_back(static_cast<std::int64_t>(buffer.size.count()));
    tenants.resident.push_back(!buffer.planned());
    tenants.initial.push_back(!graph.version(buffer.versions.front()).writer);
    tenants.uses.add(known);
  }
  return tenants;
}

}  // namespace lowtide
