// operands.h: what an op needs on its own, in whole or in parts, and who uses what.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/lists.h"
#include "lowtide/units.h"

namespace lowtide {

// Which buffers an op has only parts of.
using IsParted = std::function<bool(BufferId)>;

class Operands {
 public:
  explicit Operands(const Graph& graph);

  const Graph& graph() const { return *graph_; }

  // The buffers that an op reads or writes, and the ops that use a buffer: each once, by id.
  std::span<const BufferId> of(OpId op) const { return operands_[op.index()]; }
  std::span<const OpId> users(BufferId buffer) const { return users_[buffer.index()]; }

  bool writes(OpId op, BufferId buffer) const;

  // Along that axis, the period in which an op uses one of its buffers; none if it uses it in several ways.
  std::optional<Bytes> period(OpId op, std::size_t axis, BufferId buffer) const;

  // Bytes of planned operands and workspace while the op runs: in whole, or a part of it with those parts.
  Bytes needed(OpId op) const;
  Bytes needed(OpId op, const PartCount& parts, const IsParted& is_parted) const;

 private:
  Bytes needed(OpId op, Bytes workspace, const std::function<Bytes(BufferId)>& size,
               const std::function<bool(const Reuse&)>& may_reuse) const;

  const Graph* graph_;
  Lists<BufferId> operands_;  // by op
  Lists<OpId> users_;         // by buffer
};

}  // namespace lowtide
