#include "rewrite/parts.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "base/shown_name.h"
#include "base/words.h"
#include "graph/dependencies.h"

namespace lowtide {
namespace {

class Dividing {
 public:
  Dividing(const Graph& graph, std::span<const Split> splits)
      : graph_(graph),
        splits_(splits),
        cut_(graph.num_ops()),
        parted_(graph.num_buffers()),
        writes_so_far_(graph.num_buffers()),
        added_(graph.num_ops()) {}

  Result<Divided> run() && {
    if (Status status = assign(); !status.ok()) return status.error();
    if (Status status = check_operands(); !status.ok()) return status.error();
    find_parted();
    const std::optional<std::vector<Node>> order = in_order();
    if (!order) return refuse("another op would have to run between the parts of a split");
    if (Status status = add_buffers(); !status.ok()) return status.error();
    for (const Node node : *order) {
      if (Status status = add(node); !status.ok()) return status.error();
    }
    if (Status status = add_edges(); !status.ok()) return status.error();
    Result<Graph> built = std::move(builder_).build();
    if (!built.ok()) return built.error();
    made_.graph = *std::move(built);
    return std::move(made_);
  }

 private:
  using Node = std::size_t;  // an op that is whole, by its id; or num_ops + a split's index

  struct Cut {
    std::size_t split;
    std::uint32_t axis;
    PartCount parts;
  };

  struct Parted {
    std::size_t split;
    Bytes period;
    std::size_t next;  // the buffers of its parts from the second on, side by side
  };

  static Error refuse(std::string why) { return {ErrorCode::invalid_axis, std::move(why)}; }

  std::string named(OpId op) const { return words("op ", op, " ", quoted_name(graph_.op(op).name)); }

  BufferId buffer_of(ValueId value) const { return graph_.version(graph_.value(value).version).buffer; }
  BufferId buffer_of(VersionId version) const { return graph_.version(version).buffer; }

  Node node_of(OpId op) const {
    const std::optional<Cut>& cut = cut_[op.index()];
    return cut ? graph_.num_ops() + cut->split : op.index();
  }

  // Which ops are cut, and how; each once, and in a way that it has.
  Status assign() {
    for (std::size_t split = 0; split < splits_.size(); ++split) {
      std::optional<OpId> last;
      for (const CutOp& one : splits_[split].ops) {
        if (one.op.index() >= graph_.num_ops()) return refuse(words("there is no op ", one.op));
        if (last && one.op <= *last) return refuse("the ops of a split are not in program order");
        last = one.op;
        if (cut_[one.op.index()]) return refuse(words(named(one.op), " is in two splits"));
        if (one.axis >= graph_.num_axes(one.op)) return refuse(words(named(one.op), " has no axis ", one.axis));
        const std::span<const PartCount> counts = graph_.axis(one.op, one.axis).counts;
        const auto parts = std::ranges::find(counts, splits_[split].count, &PartCount::count);
        if (parts == counts.end()) {
          return refuse(words(named(one.op), " cannot run in ", splits_[split].count, " parts along that axis"));
        }
        cut_[one.op.index()] = Cut{split, one.axis, *parts};
      }
    }
    for (const Edge& edge : graph_.edges()) {
      if (edge.reason != EdgeReason::given) continue;
      for (const OpId op : {edge.before, edge.after}) {
        if (cut_[op.index()]) return refuse(words(named(op), " is named in an edge: it runs in whole"));
      }
    }
    return Done{};
  }

  // What a split writes, all of its ops use in the same parts; a sum nobody in it reads.
  Status check_operands() {
    std::map<std::pair<std::size_t, BufferId>, Bytes> written;
    for (std::size_t split = 0; split < splits_.size(); ++split) {
      for (const CutOp& one : splits_[split].ops) {
        const Axis axis = graph_.axis(one.op, one.axis);
        const Op op = graph_.op(one.op);
        for (std::size_t i = 0; i < op.writes.size(); ++i) {
          const auto [known, is_new] = written.emplace(std::pair(split, buffer_of(op.writes[i])), axis.writes[i]);
          if (!is_new && (known->second != axis.writes[i] || axis.writes[i] == Bytes(0))) {
            return refuse(words(named(one.op), " writes in other parts what its split writes"));
          }
        }
      }
      for (const CutOp& one : splits_[split].ops) {
        const Axis axis = graph_.axis(one.op, one.axis);
        const Op op = graph_.op(one.op);
        for (std::size_t i = 0; i < op.reads.size(); ++i) {
          const auto known = written.find({split, buffer_of(op.reads[i])});
          if (known != written.end() && (known->second != axis.reads[i] || axis.reads[i] == Bytes(0))) {
            return refuse(words(named(one.op), " reads in other parts what its split writes"));
          }
        }
      }
    }
    return Done{};
  }

  // Buffers that are never whole: planned, and used by one split alone, in the same parts.
  void find_parted() {
    std::vector<std::optional<Parted>> use(graph_.num_buffers());
    std::vector<bool> whole(graph_.num_buffers());
    const auto note = [&](BufferId buffer, const std::optional<Cut>& cut, Bytes period) {
      const std::size_t b = buffer.index();
      if (!cut || period == Bytes(0)) {
        whole[b] = true;
      } else if (!use[b]) {
        use[b] = Parted{cut->split, period, 0};
      } else if (use[b]->split != cut->split || use[b]->period != period) {
        whole[b] = true;
      }
    };
    for (OpId id(0); id.index() < graph_.num_ops(); id = id.next()) {
      const Op op = graph_.op(id);
      const std::optional<Cut>& cut = cut_[id.index()];
      const Axis axis = cut ? graph_.axis(id, cut->axis) : Axis{};
      for (std::size_t i = 0; i < op.reads.size(); ++i) {
        note(buffer_of(op.reads[i]), cut, cut ? axis.reads[i] : Bytes(0));
      }
      for (std::size_t i = 0; i < op.writes.size(); ++i) {
        note(buffer_of(op.writes[i]), cut, cut ? axis.writes[i] : Bytes(0));
      }
    }
    std::size_t next = graph_.num_buffers();
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      const Buffer buffer = graph_.buffer(id);
      if (whole[id.index()] || !use[id.index()] || !buffer.planned() || buffer.kept) continue;
      use[id.index()]->next = next;
      next += splits_[use[id.index()]->split].count - 1;
      parted_[id.index()] = use[id.index()];
    }
  }

  // Each split in one piece, where its last op is, as far as others do not wait for it. None if they cannot all be.
  std::optional<std::vector<Node>> in_order() const {
    const std::size_t num_nodes = graph_.num_ops() + splits_.size();
    const Dependencies needs = dependencies(graph_);
    std::vector<std::size_t> waits_for(num_nodes);
    std::size_t whole_ops = 0;
    for (OpId id(0); id.index() < graph_.num_ops(); id = id.next()) {
      whole_ops += cut_[id.index()] ? 0 : 1;
      for (const OpId before : needs.predecessors[id.index()]) {
        waits_for[node_of(id)] += node_of(before) != node_of(id) ? 1 : 0;
      }
    }
    using Ready = std::pair<OpId, Node>;  // by its last op
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    const auto last_op = [&](Node node) {
      return node < graph_.num_ops() ? OpId(node) : splits_[node - graph_.num_ops()].ops.back().op;
    };
    std::size_t nodes = whole_ops;
    for (Node node = 0; node < num_nodes; ++node) {
      if (node < graph_.num_ops() ? cut_[node].has_value() : splits_[node - graph_.num_ops()].ops.empty()) continue;
      if (node >= graph_.num_ops()) ++nodes;
      if (waits_for[node] == 0) ready.emplace(last_op(node), node);
    }
    std::vector<Node> order;
    while (!ready.empty()) {
      const Node node = ready.top().second;
      ready.pop();
      order.push_back(node);
      const auto release = [&](OpId op) {
        for (const OpId after : needs.successors[op.index()]) {
          const Node next = node_of(after);
          if (next != node && --waits_for[next] == 0) ready.emplace(last_op(next), next);
        }
      };
      if (node < graph_.num_ops()) {
        release(OpId(node));
      } else {
        for (const CutOp& one : splits_[node - graph_.num_ops()].ops) release(one.op);
      }
    }
    if (order.size() < nodes) return std::nullopt;
    return order;
  }

  Status add_buffer(BufferId original, Part part, Bytes period) {
    const Buffer buffer = graph_.buffer(original);
    const Result<BufferId> added =
        builder_.add_buffer({.size = Bytes(buffer.size.count() / part.count),
                             .residence = buffer.residence,
                             .role = buffer.role,
                             .name = buffer.name,
                             .initial = !graph_.version(buffer.versions.front()).writer.has_value()});
    if (!added.ok()) return added.error();
    made_.buffer_of.push_back(original);
    made_.held.push_back(part);
    made_.period.push_back(period);
    return Done{};
  }

  Status add_buffers() {
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      const std::optional<Parted>& parted = parted_[id.index()];
      const std::uint32_t count = parted ? splits_[parted->split].count : 1;
      if (Status status = add_buffer(id, {0, count}, parted ? parted->period : Bytes(0)); !status.ok()) return status;
    }
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      const std::optional<Parted>& parted = parted_[id.index()];
      if (!parted) continue;
      const std::uint32_t count = splits_[parted->split].count;
      for (std::uint32_t index = 1; index < count; ++index) {
        if (Status status = add_buffer(id, {index, count}, parted->period); !status.ok()) return status;
      }
    }
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      const Buffer buffer = graph_.buffer(id);
      if (!buffer.planned() || !buffer.kept) continue;
      if (Status status = builder_.keep(id); !status.ok()) return status;
    }
    writes_so_far_.resize(made_.buffer_of.size());
    return Done{};
  }

  // What stands in for `buffer` in that part of a split.
  BufferId stand_in(BufferId buffer, std::uint32_t index) const {
    const std::optional<Parted>& parted = parted_[buffer.index()];
    return parted && index > 0 ? BufferId(parted->next + index - 1) : buffer;
  }

  Result<ValueId> value(ValueId id, std::uint32_t index) {
    const BufferId buffer = stand_in(buffer_of(id), index);
    const std::tuple key(id, buffer, writes_so_far_[buffer.index()]);
    const auto known = values_.find(key);
    if (known != values_.end()) return known->second;
    const Value value = graph_.value(id);
    const Result<ValueId> added = builder_.add_value(buffer, value.dtype, value.shape);
    if (added.ok()) values_.emplace(key, *added);
    return added;
  }

  Status add(Node node) {
    if (node < graph_.num_ops()) return add_op(OpId(node), {0, 1});
    const Split& split = splits_[node - graph_.num_ops()];
    for (std::uint32_t index = 0; index < split.count; ++index) {
      for (const CutOp& one : split.ops) {
        if (Status status = add_op(one.op, {index, split.count}); !status.ok()) return status;
      }
    }
    return Done{};
  }

  Status add_op(OpId id, Part part) {
    const Op op = graph_.op(id);
    const std::optional<Cut>& cut = cut_[id.index()];
    OpSpec spec{.name = op.name,
                .workspace = cut ? cut->parts.workspace : op.workspace,
                .cost = cut ? cut->parts.cost : op.cost,
                .stream = op.stream,
                .flags = op.flags,
                .source = op.source,
                .module = op.module,
                .region = op.region};
    for (const ValueId read : op.reads) {
      const Result<ValueId> shown = value(read, part.index);
      if (!shown.ok()) return shown.error();
      spec.reads.push_back(*shown);
    }
    for (const VersionId write : op.writes) {
      spec.writes.push_back(stand_in(buffer_of(write), part.index));
      spec.flags.mutating |= writes_so_far_[spec.writes.back().index()] > 0;
    }
    const Result<OpId> added = builder_.add_op(spec);
    if (!added.ok()) return added.error();
    for (const BufferId buffer : spec.writes) ++writes_so_far_[buffer.index()];
    for (const Reuse& reuse : op.reuses) {
      const std::optional<Parted>& from = parted_[reuse.from.index()];
      const std::optional<Parted>& to = parted_[reuse.to.index()];
      if (cut && (!from || !to || from->period != to->period)) continue;
      const Status status =
          builder_.add_reuse(*added, stand_in(reuse.from, part.index), stand_in(reuse.to, part.index));
      if (!status.ok()) return status;
    }
    made_.op_of.push_back(id);
    made_.part_of.push_back({cut ? cut->axis : 0, part});
    added_[id.index()].push_back(*added);
    return Done{};
  }

  // Between ops of one split they hold for each part.
  Status add_edges() {
    for (const Edge& edge : graph_.edges()) {
      const std::vector<OpId>& before = added_[edge.before.index()];
      const std::vector<OpId>& after = added_[edge.after.index()];
      const bool together = before.size() > 1 && node_of(edge.before) == node_of(edge.after);
      for (std::size_t i = 0; i < (together ? before.size() : 1); ++i) {
        const Status status = builder_.add_edge(together ? before[i] : before.back(), after[i], edge.reason);
        if (!status.ok()) return status;
      }
    }
    return Done{};
  }

  const Graph& graph_;
  std::span<const Split> splits_;
  std::vector<std::optional<Cut>> cut_;        // by op
  std::vector<std::optional<Parted>> parted_;  // by buffer
  std::vector<std::uint32_t> writes_so_far_;   // by buffer of the divided graph
  std::vector<std::vector<OpId>> added_;       // by op: its parts
  std::map<std::tuple<ValueId, BufferId, std::uint32_t>, ValueId> values_;
  GraphBuilder builder_;
  Divided made_;
};

}  // namespace

Result<Divided> run_in_parts(const Graph& graph, std::span<const Split> splits) {
  return Dividing(graph, splits).run();
}

Plan plan_of_whole(const Graph& graph, const Divided& divided, const Plan& plan) {
  Plan translated = plan;
  translated.parts.clear();
  for (OpId& op : translated.order) {
    translated.parts.push_back(divided.part_of[op.index()]);
    op = divided.op_of[op.index()];
  }
  for (Block& block : translated.blocks) {
    block.part = divided.held[block.buffer.index()];
    block.period = divided.period[block.buffer.index()];
    block.buffer = divided.buffer_of[block.buffer.index()];
  }
  translated.provenance.graph = fingerprint(graph);
  return translated;
}

}  // namespace lowtide
