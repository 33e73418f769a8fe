#include "fission/operands.h"

#include <algorithm>
#include <utility>

namespace lowtide {

Operands::Operands(const Graph& graph) : graph_(&graph) {
  std::vector<std::pair<std::size_t, OpId>> users;
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const Op op = graph.op(id);
    std::vector<BufferId> own;
    for (const ValueId read : op.reads) own.push_back(graph.version(graph.value(read).version).buffer);
    for (const VersionId write : op.writes) own.push_back(graph.version(write).buffer);
    std::ranges::sort(own);
    own.erase(std::ranges::unique(own).begin(), own.end());
    for (const BufferId buffer : own) users.emplace_back(buffer.index(), id);
    operands_.add(own);
  }
  users_ = Lists<OpId>::group(graph.num_buffers(), users);
}

bool Operands::writes(OpId op, BufferId buffer) const {
  return std::ranges::any_of(graph_->op(op).writes,
                             [&](VersionId write) { return graph_->version(write).buffer == buffer; });
}

std::optional<Bytes> Operands::period(OpId id, std::size_t index, BufferId buffer) const {
  const Op op = graph_->op(id);
  const Axis axis = graph_->axis(id, index);
  std::optional<Bytes> period;
  bool is_one = true;
  const auto note = [&](VersionId version, Bytes of_operand) {
    if (graph_->version(version).buffer != buffer) return;
    is_one = is_one && (!period || *period == of_operand);
    period = of_operand;
  };
  for (std::size_t i = 0; i < op.reads.size(); ++i) note(graph_->value(op.reads[i]).version, axis.reads[i]);
  for (std::size_t i = 0; i < op.writes.size(); ++i) note(op.writes[i], axis.writes[i]);
  return is_one ? period : std::nullopt;
}

Bytes Operands::needed(OpId id, Bytes workspace, const std::function<Bytes(BufferId)>& size,
                       const std::function<bool(const Reuse&)>& may_reuse) const {
  const Op op = graph_->op(id);
  Bytes bytes = workspace;
  for (const BufferId buffer : of(id)) {
    const auto takes_over = [&](const Reuse& reuse) { return reuse.to == buffer && may_reuse(reuse); };
    if (graph_->buffer(buffer).planned() && std::ranges::none_of(op.reuses, takes_over)) bytes += size(buffer);
  }
  return bytes;
}

Bytes Operands::needed(OpId op) const {
  return needed(
      op, graph_->op(op).workspace, [&](BufferId buffer) { return graph_->buffer(buffer).size; },
      [](const Reuse&) { return true; });
}

Bytes Operands::needed(OpId op, const PartCount& parts, const IsParted& is_parted) const {
  const auto size = [&](BufferId buffer) {
    const Bytes whole = graph_->buffer(buffer).size;
    return is_parted(buffer) ? Bytes(whole.count() / parts.count) : whole;
  };
  return needed(op, parts.workspace, size,
                [&](const Reuse& reuse) { return is_parted(reuse.from) && is_parted(reuse.to); });
}

}  // namespace lowtide
