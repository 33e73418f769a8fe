#include "verify/form.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/shown_name.h"
#include "base/words.h"
#include "verify/first_runs.h"
#include "verify/parts_form.h"
#include "verify/transfers_form.h"

namespace lowtide {
namespace {

template <typename... Parts>
Error malformed(const Parts&... parts) {
  return {ErrorCode::malformed_plan, words(parts...)};
}

// Which ops no step may run again, and why.
class Unrepeatable {
 public:
  explicit Unrepeatable(const Graph& graph) : graph_(graph), in_edge_(graph.num_ops()) {
    for (const Edge& edge : graph.edges()) {
      if (edge.reason == EdgeReason::given) in_edge_[edge.before.index()] = in_edge_[edge.after.index()] = true;
    }
  }

  // Empty: it may.
  std::string reason(OpId id) const {
    const Op op = graph_.op(id);
    if (op.flags.collective) return "it talks to other ranks";
    if (op.flags.must_not_recompute) return "it must not be recomputed";
    bool writes_planned = false;
    for (const VersionId write : op.writes) {
      const Version version = graph_.version(write);
      if (graph_.buffer(version.buffer).planned()) {
        writes_planned = true;
      } else if (version.index == 0 || !op.flags.may_skip_updates) {
        return words("it ", version.index == 0 ? "makes " : "changes ", describe_buffer(graph_, version.buffer),
                     ", which is resident");
      }
    }
    if (!writes_planned) return "it writes no planned buffer";
    return in_edge_[id.index()] ? "an edge orders it" : "";
  }

 private:
  const Graph& graph_;
  std::vector<bool> in_edge_;  // by op
};

Status check_steps(const Graph& graph, const Plan& plan) {
  const std::size_t steps = plan.order.size();
  if (plan.reads.size() != steps || plan.writes.size() != steps || plan.workspaces.size() != steps) {
    return malformed("the plan has ", steps, " steps, but reads for ", plan.reads.size(), ", writes for ",
                     plan.writes.size(), " and workspaces for ", plan.workspaces.size());
  }
  if (!plan.parts.empty() && plan.parts.size() != steps) {
    return malformed("the plan has ", steps, " steps, but parts for ", plan.parts.size());
  }
  if (plan.blocks.size() > kMaxIds || steps > kMaxIds) {
    return malformed("the plan has ", plan.blocks.size(), " blocks and ", steps, " steps, more than ids can name");
  }

  const Unrepeatable unrepeatable(graph);
  const StepPartCheck parts(graph, plan);
  FirstRuns runs(graph.num_ops());
  for (std::size_t step = 0; step < steps; ++step) {
    const OpId id = plan.order[step];
    if (id.index() >= graph.num_ops()) {
      return malformed("step ", step, " runs op ", id, ", but the graph has ", graph.num_ops());
    }
    if (Status status = parts.check(StepIndex(step)); !status.ok()) return status;
    if (!runs.add(id, plan.part(StepIndex(step)))) {
      if (const std::string why = unrepeatable.reason(id); !why.empty()) {
        return Error{ErrorCode::op_repeated,
                     words("step ", step, " runs ", describe_op(graph, id), " again, but ", why)};
      }
    }
    const Op op = graph.op(id);
    if (plan.reads[step].size() != op.reads.size() || plan.writes[step].size() != op.writes.size()) {
      return malformed("step ", step, " gives ", plan.reads[step].size(), " reads and ", plan.writes[step].size(),
                       " writes to ", describe_op(graph, id), ", which has ", op.reads.size(), " and ",
                       op.writes.size());
    }
    for (const auto& operands : {plan.reads[step], plan.writes[step]}) {
      for (const BlockId block : operands) {
        if (block.index() < plan.blocks.size()) continue;
        return malformed("step ", step, " uses block ", block, ", but the plan has ", plan.blocks.size());
      }
    }
  }
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    if (runs.is_complete(id)) continue;
    const std::string part = runs.has_begun(id) ? describe_part(runs.first_missing(id).part) + " of " : "";
    return Error{ErrorCode::op_missing, words("no step runs ", part, describe_op(graph, id))};
  }
  return Done{};
}

// By buffer: its block without an offset, if it is resident and has one. The first of several.
std::vector<std::optional<BlockId>> find_homes(const Graph& graph, const Plan& plan) {
  std::vector<std::optional<BlockId>> homes(graph.num_buffers());
  for (BlockId id(0); id.index() < plan.blocks.size(); id = id.next()) {
    const Block& block = plan.blocks[id.index()];
    if (block.offset || block.buffer.index() >= graph.num_buffers()) continue;
    std::optional<BlockId>& home = homes[block.buffer.index()];
    if (!home && !graph.buffer(block.buffer).planned()) home = id;
  }
  return homes;
}

class BlockCheck {
 public:
  BlockCheck(const Graph& graph, const Plan& plan)
      : graph_(graph), plan_(plan), last_(plan.order.size()), homes_(find_homes(graph, plan)) {}

  Status run() const {
    for (BlockId id(0); id.index() < plan_.blocks.size(); id = id.next()) {
      if (Status status = check(id); !status.ok()) return status;
    }
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      if (graph_.buffer(id).planned() || homes_[id.index()]) continue;
      return Error{ErrorCode::wrong_residence, words(describe_buffer(graph_, id), " is resident but has no block")};
    }
    return Done{};
  }

 private:
  template <typename... Parts>
  Error wrong(ErrorCode code, BlockId id, const Parts&... why) const {
    return {code, words(describe_block(graph_, plan_, id), " ", why...)};
  }

  Status check(BlockId id) const {
    const Block& block = plan_.blocks[id.index()];
    if (block.buffer.index() >= graph_.num_buffers()) {
      return malformed("block ", id, " stands in for buffer ", block.buffer, ", but the graph has ",
                       graph_.num_buffers());
    }
    if (block.tier > plan_.tiers.size()) {
      return malformed("block ", id, " is in tier ", block.tier, ", but the plan has ", plan_.tiers.size());
    }
    if (Status status = check_block_part(graph_, plan_, id); !status.ok()) return status;
    const bool planned = graph_.buffer(block.buffer).planned();
    if (!block.offset) {
      return planned ? wrong(ErrorCode::wrong_residence, id, "is planned but has no offset") : check_home(id);
    }
    if (!planned) {
      if (Status status = check_beside_home(id); !status.ok()) return status;
    }
    if (block.begin >= block.end || block.end > last_) {
      return wrong(ErrorCode::malformed_life, id, "lives [", block.begin, ",", block.end, ") in a plan of ", last_,
                   " steps");
    }
    return Done{};
  }

  Status check_home(BlockId id) const {
    const Block& block = plan_.blocks[id.index()];
    if (block.begin != StepIndex(0) || block.end != last_) {
      return wrong(ErrorCode::wrong_residence, id, "is resident but lives only [", block.begin, ",", block.end, ") of ",
                   last_, " steps");
    }
    if (homes_[block.buffer.index()] != id) {
      return wrong(ErrorCode::wrong_residence, id, "is resident and has a block already");
    }
    return Done{};
  }

  Status check_beside_home(BlockId id) const {
    const Block& block = plan_.blocks[id.index()];
    const std::optional<BlockId> home = homes_[block.buffer.index()];
    if (!home || plan_.blocks[home->index()].tier == 0) {
      return wrong(ErrorCode::wrong_residence, id, "is resident but has offset ", *block.offset);
    }
    if (block.tier != 0) {
      return wrong(ErrorCode::wrong_residence, id, "is resident and has its home in ",
                   describe_tier(plan_, plan_.blocks[home->index()].tier), ", but has offset ", *block.offset, " in ",
                   describe_tier(plan_, block.tier));
    }
    return Done{};
  }

  const Graph& graph_;
  const Plan& plan_;
  const StepIndex last_;
  const std::vector<std::optional<BlockId>> homes_;  // by buffer
};

}  // namespace

Status check_form(const Graph& graph, const Plan& plan) {
  if (Status status = check_steps(graph, plan); !status.ok()) return status;
  if (Status status = BlockCheck(graph, plan).run(); !status.ok()) return status;
  return check_transfers(graph, plan);
}

std::string describe_op(const Graph& graph, OpId op) {
  return words("op ", op, " ", quoted_name(graph.op(op).name));
}

std::string describe_buffer(const Graph& graph, BufferId buffer) {
  return words("buffer ", buffer, " ", quoted_name(graph.buffer(buffer).name));
}

std::string describe_block(const Graph& graph, const Plan& plan, BlockId block) {
  const auto& [index, count] = plan.blocks[block.index()].part;
  const std::string part = count == 1 ? "" : describe_part({index, count}) + " of ";
  return words("block ", block, " (", part, describe_buffer(graph, plan.blocks[block.index()].buffer), ")");
}

std::string describe_tier(const Plan& plan, std::uint32_t tier) {
  return words("tier ", tier, " ", quoted_name(plan.tiers[tier - 1].name));
}

}  // namespace lowtide
