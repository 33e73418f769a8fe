#include "rewrite/repeats.h"

#include <algorithm>

namespace lowtide {

Repeats::Repeats(const Graph& graph) : graph_(&graph) {
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const Op op = graph.op(id);
    const auto is_planned = [&](VersionId write) { return graph.buffer(graph.version(write).buffer).planned(); };
    const auto may_be_repeated = [&](VersionId write) {
      return is_planned(write) || (op.flags.may_skip_updates && graph.version(write).index > 0);
    };
    allowed_.push_back(std::ranges::any_of(op.writes, is_planned) && std::ranges::all_of(op.writes, may_be_repeated) &&
                       !op.flags.collective && !op.flags.must_not_recompute);
  }
  for (const Edge& edge : graph.edges()) {
    if (edge.reason == EdgeReason::given) allowed_[edge.before.index()] = allowed_[edge.after.index()] = false;
  }
}

bool Repeats::skips(OpId op, BufferId buffer) const {
  if (graph_->buffer(buffer).planned()) return false;
  return std::ranges::any_of(graph_->op(op).writes,
                             [&](VersionId write) { return graph_->version(write).buffer == buffer; });
}

}  // namespace lowtide
