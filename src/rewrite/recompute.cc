#include "rewrite/recompute.h"

#include <map>
#include <optional>
#include <utility>

#include "rewrite/repeats.h"

namespace lowtide {
namespace {

class Rewriting {
 public:
  Rewriting(const Graph& graph, std::span<const OpId> steps)
      : graph_(graph), steps_(steps), repeats_(graph), first_run_(graph.num_ops()) {}

  Result<Rewritten> run() && {
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      const Buffer buffer = graph_.buffer(id);
      const bool initial = !graph_.version(buffer.versions.front()).writer;
      if (Status status = add_buffer(id, initial); !status.ok()) return status.error();
      newest_.push_back(BufferId(id.index()));
    }
    for (const OpId op : steps_) {
      if (Status status = add_step(op); !status.ok()) return status.error();
    }
    for (const Edge& edge : graph_.edges()) {
      if (Status status =
              builder_.add_edge(*first_run_[edge.before.index()], *first_run_[edge.after.index()], edge.reason);
          !status.ok()) {
        return status.error();
      }
    }
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      const Buffer buffer = graph_.buffer(id);
      if (!buffer.planned() || !buffer.kept) continue;
      if (Status status = builder_.keep(newest_[id.index()]); !status.ok()) return status.error();
    }
    Result<Graph> built = std::move(builder_).build();
    if (!built.ok()) return built.error();
    made_.graph = *std::move(built);
    return std::move(made_);
  }

 private:
  BufferId buffer_of(VersionId version) const { return graph_.version(version).buffer; }

  Status add_buffer(BufferId original, bool initial) {
    const Buffer buffer = graph_.buffer(original);
    const Result<BufferId> added = builder_.add_buffer({.size = buffer.size,
                                                        .residence = buffer.residence,
                                                        .role = buffer.role,
                                                        .name = buffer.name,
                                                        .initial = initial});
    if (!added.ok()) return added.error();
    made_.buffer_of.push_back(original);
    return Done{};
  }

  // The value of the original, of what was made last.
  Result<ValueId> value(ValueId id) {
    const Value value = graph_.value(id);
    const BufferId buffer = newest_[buffer_of(value.version).index()];
    const auto known = values_.find({id, buffer});
    if (known != values_.end()) return known->second;
    const Result<ValueId> added = builder_.add_value(buffer, value.dtype, value.shape);
    if (added.ok()) values_.emplace(std::pair(id, buffer), *added);
    return added;
  }

  Status add_step(OpId id) {
    const Op op = graph_.op(id);
    const std::optional<OpId> first = first_run_[id.index()];
    OpSpec spec{.name = op.name,
                .workspace = op.workspace,
                .cost = op.cost,
                .stream = op.stream,
                .flags = op.flags,
                .source = op.source,
                .module = op.module};
    for (const ValueId read : op.reads) {
      const BufferId buffer = buffer_of(graph_.value(read).version);
      made_.reads.push(newest_[buffer.index()]);
      if (first && repeats_.skips(id, buffer)) continue;
      const Result<ValueId> shown = value(read);
      if (!shown.ok()) return shown.error();
      spec.reads.push_back(*shown);
    }
    made_.reads.close();
    for (const VersionId write : op.writes) {
      const BufferId buffer = buffer_of(write);
      const bool planned = graph_.buffer(buffer).planned();
      if (first && planned && graph_.version(write).index == 0) {
        if (Status status = add_buffer(buffer, false); !status.ok()) return status;
        newest_[buffer.index()] = BufferId(made_.buffer_of.size() - 1);
      }
      made_.writes.push(newest_[buffer.index()]);
      if (!first || planned) spec.writes.push_back(newest_[buffer.index()]);
    }
    made_.writes.close();
    std::vector<Reuse> reuses;
    for (const Reuse& reuse : op.reuses) {
      reuses.push_back({newest_[reuse.from.index()], newest_[reuse.to.index()]});
    }
    const Result<OpId> added = builder_.add_op(spec);
    if (!added.ok()) return added.error();
    made_.op_of.push_back(id);
    for (const Reuse& reuse : reuses) {
      if (Status status = builder_.add_reuse(*added, reuse.from, reuse.to); !status.ok()) return status;
    }
    if (Status status = add_axes(id, *added, first.has_value()); !status.ok()) return status;
    if (!first) {
      first_run_[id.index()] = last_first_run_ = *added;
      return Done{};
    }
    // Of two runs of a random op, their flag says which is the first.
    if (op.flags.may_skip_updates) {
      if (Status status = builder_.add_edge(*first, *added, EdgeReason::rerun); !status.ok()) return status;
    }
    return builder_.add_edge(*last_first_run_, *added, EdgeReason::rerun);
  }

  // A repeat that leaves something out runs in whole.
  Status add_axes(OpId id, OpId added, bool again) {
    if (again && graph_.op(id).flags.may_skip_updates) return Done{};
    for (std::size_t i = 0; i < graph_.num_axes(id); ++i) {
      const Axis axis = graph_.axis(id, i);
      const Status status = builder_.add_axis(added, {.reads = {axis.reads.begin(), axis.reads.end()},
                                                      .writes = {axis.writes.begin(), axis.writes.end()},
                                                      .counts = {axis.counts.begin(), axis.counts.end()}});
      if (!status.ok()) return status;
    }
    return Done{};
  }

  const Graph& graph_;
  std::span<const OpId> steps_;
  Repeats repeats_;
  GraphBuilder builder_;
  std::vector<std::optional<OpId>> first_run_;  // by op of the original
  std::optional<OpId> last_first_run_;          // so far
  std::vector<BufferId> newest_;                // by buffer of the original: where it was made last
  std::map<std::pair<ValueId, BufferId>, ValueId> values_;
  Rewritten made_;
};

}  // namespace

Result<Rewritten> run_again(const Graph& graph, std::span<const OpId> steps) {
  return Rewriting(graph, steps).run();
}

Plan plan_of_original(const Graph& graph, const Rewritten& rewritten, const Plan& plan) {
  Plan translated = plan;
  translated.reads = {};
  translated.writes = {};
  const auto buffer_of = [&](VersionId version) { return rewritten.graph.version(version).buffer; };
  for (std::size_t step = 0; step < plan.order.size(); ++step) {
    const OpId id = plan.order[step];
    const Op op = rewritten.graph.op(id);
    const auto block_of = [&](BufferId buffer) {
      for (std::size_t i = 0; i < op.reads.size(); ++i) {
        if (buffer_of(rewritten.graph.value(op.reads[i]).version) == buffer) return plan.reads[step][i];
      }
      for (std::size_t i = 0; i < op.writes.size(); ++i) {
        if (buffer_of(op.writes[i]) == buffer) return plan.writes[step][i];
      }
      return BlockId(buffer.index());  // one that it leaves alone
    };
    for (const BufferId buffer : rewritten.reads[id.index()]) translated.reads.push(block_of(buffer));
    translated.reads.close();
    for (const BufferId buffer : rewritten.writes[id.index()]) translated.writes.push(block_of(buffer));
    translated.writes.close();
    translated.order[step] = rewritten.op_of[id.index()];
  }
  for (Block& block : translated.blocks) block.buffer = rewritten.buffer_of[block.buffer.index()];
  translated.provenance.graph = fingerprint(graph);
  return translated;
}

}  // namespace lowtide
