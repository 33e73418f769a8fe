#include "lowtide/verify.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/words.h"
#include "verify/form.h"
#include "verify/occupancy.h"

namespace lowtide {
namespace {

std::string range_text(Bytes offset, Bytes size) {
  return words("[", offset, ",", offset + size, ")");
}

// The state of a machine that runs the plan, with versions in place of contents.
class Execution {
 public:
  Execution(const Graph& graph, const Plan& plan)
      : graph_(graph), plan_(plan), ran_(graph.num_ops()), holds_(plan.blocks.size()), seen_in_(graph.num_buffers()) {
    std::vector<std::pair<std::size_t, BlockId>> begins;
    std::vector<std::pair<std::size_t, BlockId>> ends;
    for (BlockId id(0); id.index() < plan.blocks.size(); id = id.next()) {
      const Block& block = plan.blocks[id.index()];
      const Buffer buffer = graph.buffer(block.buffer);
      if (buffer.planned()) {
        begins.emplace_back(block.begin.index(), id);
        ends.emplace_back(block.end.index(), id);
      } else if (const VersionId first = buffer.versions.front(); !graph.version(first).writer) {
        holds_[id.index()] = first;
      }
    }
    begins_ = Lists<BlockId>::group(plan.order.size() + 1, begins);
    ends_ = Lists<BlockId>::group(plan.order.size() + 1, ends);
  }

  Status run() {
    for (StepIndex step(0); step.index() < plan_.order.size(); step = step.next()) {
      step_ = step;
      op_ = plan_.order[step.index()];
      again_ = ran_[op_.index()];
      ran_[op_.index()] = true;
      for (const BlockId block : ends_[step.index()]) give_back(block);
      for (const BlockId block : begins_[step.index()]) {
        if (Status status = take(block); !status.ok()) return status;
      }
      if (Status status = place_workspace(); !status.ok()) return status;
      if (Status status = keep_sequences(); !status.ok()) return status;
      if (Status status = read_and_write(); !status.ok()) return status;
      for (const BlockId block : taken_over_) holds_[block.index()].reset();
      taken_over_.clear();
      time_ += graph_.op(op_).cost;
    }
    if (Status status = check_edges(); !status.ok()) return status;
    if (Status status = check_final_contents(); !status.ok()) return status;
    return check_figures();
  }

 private:
  template <typename... Parts>
  static Error wrong(ErrorCode code, const Parts&... parts) {
    return {code, words(parts...)};
  }

  // "step 4, op 7 'aten::mul'"
  std::string here() const { return words("step ", step_, ", ", describe_op(graph_, op_)); }
  std::string name(BlockId id) const { return describe_block(graph_, plan_, id); }
  std::string name(BufferId id) const { return describe_buffer(graph_, id); }

  // Are `size` bytes at `offset` a place that the arena can give? `id` is the block they are for; none: the op's
  // workspace.
  Status check_place(Bytes offset, Bytes size, std::optional<BlockId> id) const {
    const auto what = [&] { return id ? name(*id) : words(here(), ": its workspace"); };
    const std::optional<Bytes> end = checked_add(offset, size);
    if (!end) {
      return wrong(ErrorCode::address_overflow, what(), " of ", size, " bytes at offset ", offset,
                   " ends beyond 64 bits");
    }
    if (plan_.alignment == Bytes(0) || offset.count() % plan_.alignment.count() != 0) {
      return wrong(ErrorCode::misaligned, what(), " is at offset ", offset, ", not a multiple of ", plan_.alignment);
    }
    if (*end > plan_.arena) {
      return wrong(ErrorCode::outside_arena, what(), " takes bytes ", range_text(offset, size), " of an arena of ",
                   plan_.arena);
    }
    return Done{};
  }

  Status take(BlockId id) {
    const Bytes offset = *plan_.blocks[id.index()].offset;
    const Bytes size = size_of(id);
    if (size == Bytes(0)) return Done{};
    if (Status status = check_place(offset, size, id); !status.ok()) return status;
    if (const std::optional<BlockId> other = occupancy_.find(offset, offset + size)) {
      const Block& block = plan_.blocks[other->index()];
      if (may_take_over(id, *other)) {
        occupancy_.give_back(offset);
        occupancy_.take(offset, offset + size, id);
        taken_over_.push_back(*other);
        return Done{};
      }
      return wrong(ErrorCode::block_overlap, here(), ": ", name(id), " begins on bytes ", range_text(offset, size),
                   ", but ", name(*other), " lives on ", range_text(*block.offset, size_of(*other)), " until step ",
                   block.end);
    }
    occupancy_.take(offset, offset + size, id);
    live_ += size;
    highest_ = std::max(highest_, offset + size);
    return Done{};
  }

  // The op may make the content of `next` in the bytes of `last`, which nobody needs after it.
  bool may_take_over(BlockId next, BlockId last) const {
    const Block& from = plan_.blocks[last.index()];
    const Block& to = plan_.blocks[next.index()];
    const bool same_bytes = from.offset == to.offset && size_of(last) == size_of(next);
    if (!same_bytes || from.end != step_.next()) return false;
    const Op op = graph_.op(op_);
    const auto is_given = [](std::span<const BlockId> operands, BlockId block) {
      return std::ranges::find(operands, block) != operands.end();
    };
    return std::ranges::find(op.reuses, Reuse{from.buffer, to.buffer}) != op.reuses.end() &&
           is_given(plan_.reads[step_.index()], last) && is_given(plan_.writes[step_.index()], next);
  }

  void give_back(BlockId id) {
    const Bytes size = size_of(id);
    if (size == Bytes(0)) return;
    const Bytes offset = *plan_.blocks[id.index()].offset;
    if (occupancy_.find(offset, offset + size) != id) return;  // another has taken it over
    occupancy_.give_back(offset);
    live_ -= size;
  }

  Status place_workspace() {
    const Bytes offset = plan_.workspaces[step_.index()];
    const Bytes size = graph_.op(op_).workspace;
    peak_ = std::max(peak_, live_ + size);
    if (size == Bytes(0)) return Done{};
    if (Status status = check_place(offset, size, std::nullopt); !status.ok()) return status;
    if (const std::optional<BlockId> other = occupancy_.find(offset, offset + size)) {
      return wrong(ErrorCode::workspace_overlap, here(), ": its workspace takes bytes ", range_text(offset, size),
                   ", but ", name(*other), " lives on ",
                   range_text(*plan_.blocks[other->index()].offset, size_of(*other)));
    }
    highest_ = std::max(highest_, offset + size);
    return Done{};
  }

  // Runs again draw the numbers of the first run, and collectives have none.
  Status keep_sequences() {
    if (again_) return Done{};
    const OpFlags flags = graph_.op(op_).flags;
    if (flags.random && last_random_ && op_ < *last_random_) {
      return wrong(ErrorCode::random_out_of_order, here(), " draws random numbers after ",
                   describe_op(graph_, *last_random_), ", which draws later in the program");
    }
    if (flags.collective && last_collective_ && op_ < *last_collective_) {
      return wrong(ErrorCode::collective_out_of_order, here(), " communicates after ",
                   describe_op(graph_, *last_collective_), ", which communicates later in the program");
    }
    if (flags.random) last_random_ = op_;
    if (flags.collective) last_collective_ = op_;
    return Done{};
  }

  Status read_and_write() {
    const Op op = graph_.op(op_);
    const std::span<const BlockId> read_blocks = plan_.reads[step_.index()];
    const std::span<const BlockId> write_blocks = plan_.writes[step_.index()];

    for (std::size_t i = 0; i < op.reads.size(); ++i) {
      const VersionId version = graph_.value(op.reads[i]).version;
      const BufferId buffer = graph_.version(version).buffer;
      if (Status status = check_access(read_blocks[i], buffer, "reads"); !status.ok()) return status;
      if (leaves_alone(op, buffer)) continue;
      if (Status status = check_holds(read_blocks[i], version, "reads"); !status.ok()) return status;
    }
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      const Version version = graph_.version(op.writes[i]);
      if (Status status = check_access(write_blocks[i], version.buffer, "writes"); !status.ok()) return status;
      if (leaves_alone(op, version.buffer)) continue;
      if (version.index > 0) {
        const VersionId previous = graph_.buffer(version.buffer).versions[version.index - 1];
        if (Status status = check_holds(write_blocks[i], previous, "changes in place"); !status.ok()) return status;
      } else if (const std::optional<VersionId>& held = holds_[write_blocks[i].index()]) {
        return wrong(ErrorCode::block_made_twice, here(), " makes ", name(write_blocks[i]), ", which holds version ",
                     graph_.version(*held).index, " already");
      }
      holds_[write_blocks[i].index()] = op.writes[i];
    }
    return Done{};
  }

  // Run again, an op neither reads nor writes what it would change in resident buffers. check_form() has seen to it
  // that it can.
  bool leaves_alone(const Op& op, BufferId buffer) const {
    return again_ && !graph_.buffer(buffer).planned() &&
           std::ranges::any_of(op.writes, [&](VersionId write) { return graph_.version(write).buffer == buffer; });
  }

  // The block stands in for `buffer`, is alive, and is the only one of that buffer that the op is given.
  Status check_access(BlockId id, BufferId buffer, std::string_view verb) {
    const Block& block = plan_.blocks[id.index()];
    if (block.buffer != buffer) {
      return wrong(ErrorCode::wrong_block, here(), " ", verb, " ", name(buffer), " in ", name(id));
    }
    if (step_ < block.begin || block.end <= step_) {
      return wrong(ErrorCode::use_outside_life, here(), " ", verb, " ", name(id), ", which lives [", block.begin, ",",
                   block.end, ")");
    }
    auto& [step, seen] = seen_in_[buffer.index()];
    if (step == step_ && seen && *seen != id) {
      return wrong(ErrorCode::alias_dropped, here(), " ", verb, " ", name(buffer), " in block ", id,
                   ", and also uses block ", *seen, " of it");
    }
    step = step_;
    seen = id;
    return Done{};
  }

  Status check_holds(BlockId id, VersionId needed, std::string_view verb) const {
    const std::optional<VersionId>& held = holds_[id.index()];
    if (held == needed) return Done{};
    const std::string what = words(here(), " ", verb, " version ", graph_.version(needed).index, " of ", name(id));
    if (!held) return wrong(ErrorCode::read_before_write, what, ", which nothing has written yet");
    return wrong(ErrorCode::wrong_version, what, ", which holds version ", graph_.version(*held).index);
  }

  Status check_edges() const {
    std::vector<StepIndex> step_of(graph_.num_ops());  // of first runs
    for (std::size_t step = plan_.order.size(); step-- > 0;) step_of[plan_.order[step].index()] = StepIndex(step);
    for (const Edge& edge : graph_.edges()) {
      const StepIndex before = step_of[edge.before.index()];
      const StepIndex after = step_of[edge.after.index()];
      if (before < after) continue;
      return wrong(ErrorCode::edge_violated, describe_op(graph_, edge.before), " must run before ",
                   describe_op(graph_, edge.after), ", but they run at steps ", before, " and ", after);
    }
    return Done{};
  }

  Status check_final_contents() const {
    std::vector<bool> found(graph_.num_buffers());
    for (BlockId id(0); id.index() < plan_.blocks.size(); id = id.next()) {
      const Block& block = plan_.blocks[id.index()];
      const bool alive = block.end.index() == plan_.order.size();
      if (alive && holds_[id.index()] == graph_.buffer(block.buffer).versions.back())
        found[block.buffer.index()] = true;
    }
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      const Buffer buffer = graph_.buffer(id);
      if (!buffer.kept || found[id.index()]) continue;
      return wrong(ErrorCode::final_content_lost, "no block of ", name(id), " holds its last version, ",
                   buffer.versions.size() - 1, ", when the plan ends");
    }
    return Done{};
  }

  Status check_figures() const {
    const auto differs = [](ErrorCode code, std::string_view what, auto stated, auto found) {
      return wrong(code, "the plan states ", what, " of ", stated, ", but it is ", found);
    };
    const Bytes resident = graph_.resident_bytes();
    if (plan_.arena != highest_) return differs(ErrorCode::wrong_arena, "an arena", plan_.arena, highest_);
    if (plan_.peak != peak_) return differs(ErrorCode::wrong_peak, "a peak", plan_.peak, peak_);
    if (plan_.resident != resident)
      return differs(ErrorCode::wrong_resident, "resident bytes", plan_.resident, resident);
    if (plan_.time != time_) return differs(ErrorCode::wrong_time, "a time", plan_.time, time_);
    if (plan_.bound > highest_) {
      return wrong(ErrorCode::wrong_bound, "the plan states that no arena is smaller than ", plan_.bound,
                   ", but its own is ", highest_);
    }
    return Done{};
  }

  Bytes size_of(BlockId id) const { return graph_.buffer(plan_.blocks[id.index()].buffer).size; }

  const Graph& graph_;
  const Plan& plan_;
  Lists<BlockId> begins_;  // by step
  Lists<BlockId> ends_;    // by step

  StepIndex step_;
  OpId op_;
  bool again_ = false;     // the op has run before
  std::vector<bool> ran_;  // by op
  Occupancy occupancy_;
  std::vector<BlockId> taken_over_;              // at this step: their bytes are another block's now
  std::vector<std::optional<VersionId>> holds_;  // by block
  std::vector<std::pair<StepIndex, std::optional<BlockId>>> seen_in_;  // by buffer: when it was last used, and where
  std::optional<OpId> last_random_;
  std::optional<OpId> last_collective_;

  Bytes live_;
  Bytes peak_;
  Bytes highest_;
  Nanos time_;
};

Status check_graph(const Graph& graph, const Plan& plan) {
  if (!plan.provenance.graph) return Done{};
  const Fingerprint found = fingerprint(graph);
  if (found == *plan.provenance.graph) return Done{};
  return Error{ErrorCode::other_graph,
               words("the plan was made for another graph: its fingerprint is ",
                     fingerprint_text(*plan.provenance.graph), ", and this one's ", fingerprint_text(found))};
}

}  // namespace

Status verify(const Graph& graph, const Plan& plan) {
  if (Status status = check_graph(graph, plan); !status.ok()) return status;
  if (Status status = check_form(graph, plan); !status.ok()) return status;
  return Execution(graph, plan).run();
}

}  // namespace lowtide
