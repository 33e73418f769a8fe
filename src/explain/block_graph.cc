#include "explain/block_graph.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/words.h"

namespace lowtide {
namespace {

class BlockGraph {
 public:
  BlockGraph(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan), buffers_(plan.blocks.size()) {}

  Result<Graph> build() && {
    for (BlockId id(0); id.index() < plan_.blocks.size(); id = id.next()) {
      if (plan_.blocks[id.index()].offset) continue;
      if (const Result<BufferId> home = buffer_of(id); !home.ok()) return home.error();
    }
    for (StepIndex step(0); step.index() < plan_.order.size(); step = step.next()) {
      if (Status status = add_step(step); !status.ok()) return status.error();
    }
    return std::move(builder_).build();
  }

 private:
  Result<BufferId> buffer_of(BlockId id) {
    std::optional<BufferId>& own = buffers_[id.index()];
    if (own) return *own;
    const Block& block = plan_.blocks[id.index()];
    const Buffer buffer = graph_.buffer(block.buffer);
    const auto& [index, count] = block.part;
    const std::string name =
        count == 1 ? std::string(buffer.name) : words(buffer.name, " (part ", index, " of ", count, ")");
    const Result<BufferId> made = builder_.add_buffer({.size = block.bytes_of(buffer.size),
                                                       .residence = buffer.residence,
                                                       .role = buffer.role,
                                                       .name = name,
                                                       .initial = !graph_.version(buffer.versions.front()).writer});
    if (!made.ok()) return made;
    own = *made;
    const bool kept = buffer.planned() && buffer.kept && block.end.index() == plan_.order.size();
    if (kept) {
      if (Status status = builder_.keep(*made); !status.ok()) return status.error();
    }
    return made;
  }

  Status add_step(StepIndex step) {
    const OpId id = plan_.order[step.index()];
    const Op op = graph_.op(id);
    OpSpec spec{.name = op.name,
                .workspace = op.workspace,
                .cost = op.cost,
                .stream = op.stream,
                .flags = op.flags,
                .source = op.source,
                .module = op.module};
    if (const StepPart how = plan_.part(step); how.part.count > 1) {
      const Axis axis = graph_.axis(id, how.axis);
      const PartCount& needs = *std::ranges::find(axis.counts, how.part.count, &PartCount::count);
      spec.workspace = needs.workspace;
      spec.cost = needs.cost;
    }
    const std::span<const BlockId> reads = plan_.reads[step.index()];
    const std::span<const BlockId> writes = plan_.writes[step.index()];
    for (std::size_t i = 0; i < reads.size(); ++i) {
      const Result<BufferId> buffer = buffer_of(reads[i]);
      if (!buffer.ok()) return buffer.error();
      const Value value = graph_.value(op.reads[i]);
      const Result<ValueId> read = builder_.add_value(*buffer, value.dtype, value.shape);
      if (!read.ok()) return read.error();
      spec.reads.push_back(*read);
    }
    for (const BlockId block : writes) {
      const Result<BufferId> buffer = buffer_of(block);
      if (!buffer.ok()) return buffer.error();
      spec.writes.push_back(*buffer);
    }
    const Result<OpId> added = builder_.add_op(spec);
    if (!added.ok()) return added.error();
    for (const BlockId to : writes) {
      const auto from = std::ranges::find_if(reads, [&](BlockId read) { return takes_over(step, op, read, to); });
      if (from == reads.end()) continue;
      const BufferId taken = *buffers_[from->index()];
      if (Status status = builder_.add_reuse(*added, taken, *buffers_[to.index()]); !status.ok()) return status;
    }
    return Done{};
  }

  bool takes_over(StepIndex step, const Op& op, BlockId last, BlockId next) const {
    const Block& from = plan_.blocks[last.index()];
    const Block& to = plan_.blocks[next.index()];
    return from.offset && from.offset == to.offset && from.end == step.next() && to.begin == step &&
           from.part == to.part && std::ranges::find(op.reuses, Reuse{from.buffer, to.buffer}) != op.reuses.end();
  }

  const Graph& graph_;
  const Plan& plan_;
  std::vector<std::optional<BufferId>> buffers_;  // by block, once a step uses it
  GraphBuilder builder_;
};

}  // namespace

Result<Graph> graph_of_blocks(const Graph& graph, const Plan& plan) {
  return BlockGraph(graph, plan).build();
}

}  // namespace lowtide
