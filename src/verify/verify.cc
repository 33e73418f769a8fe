#include "lowtide/verify.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/words.h"
#include "verify/clocks.h"
#include "verify/contents.h"
#include "verify/first_runs.h"
#include "verify/flights.h"
#include "verify/form.h"
#include "verify/occupancy.h"
#include "verify/parts_form.h"

namespace lowtide {
namespace {

std::string range_text(Bytes offset, Bytes size) {
  return words("[", offset, ",", offset + size, ")");
}

// The state of a machine that runs the plan, with versions in place of contents.
class Execution {
 public:
  Execution(const Graph& graph, const Plan& plan)
      : graph_(graph),
        plan_(plan),
        runs_(graph.num_ops()),
        arenas_(plan.tiers.size() + 1),
        contents_(plan),
        seen_in_(graph.num_buffers()),
        flights_(plan),
        clocks_(plan) {
    std::vector<std::pair<std::size_t, BlockId>> begins;
    std::vector<std::pair<std::size_t, BlockId>> ends;
    for (BlockId id(0); id.index() < plan.blocks.size(); id = id.next()) {
      const Block& block = plan.blocks[id.index()];
      if (block.offset) {
        begins.emplace_back(block.begin.index(), id);
        ends.emplace_back(block.end.index(), id);
      } else if (const VersionId first = graph.buffer(block.buffer).versions.front(); !graph.version(first).writer) {
        contents_.write(id, first);
      }
    }
    begins_ = Lists<BlockId>::group(plan.order.size() + 1, begins);
    ends_ = Lists<BlockId>::group(plan.order.size() + 1, ends);
    std::vector<std::pair<std::size_t, std::size_t>> waits;
    for (std::size_t i = 0; i < plan.transfers.size(); ++i) waits.emplace_back(plan.transfers[i].wait.index(), i);
    waits_ = Lists<std::size_t>::group(plan.order.size() + 1, waits);
  }

  Status run() {
    for (StepIndex step(0); step.index() < plan_.order.size(); step = step.next()) {
      step_ = step;
      op_ = plan_.order[step.index()];
      look_at_part();
      again_ = !runs_.add(op_, part_);
      if (Status status = prepare(); !status.ok()) return status;
      if (Status status = place_workspace(); !status.ok()) return status;
      if (Status status = keep_sequences(); !status.ok()) return status;
      if (Status status = read_and_write(); !status.ok()) return status;
      for (const BlockId block : taken_over_) contents_.clear(block);
      taken_over_.clear();
      clocks_.run(cost_);
    }
    step_ = StepIndex(plan_.order.size());
    if (Status status = prepare(); !status.ok()) return status;
    if (Status status = check_edges(); !status.ok()) return status;
    if (Status status = check_final_contents(); !status.ok()) return status;
    return check_figures();
  }

 private:
  template <typename... Parts>
  static Error wrong(ErrorCode code, const Parts&... parts) {
    return {code, words(parts...)};
  }

  // "step 4, op 7 'aten::mul'", "step 4, op 7 'aten::mul', part 0 of 2"
  std::string here() const {
    return words("step ", step_, ", ", describe_op(graph_, op_), is_part() ? ", " + describe_part(part_.part) : "");
  }
  std::string name(BlockId id) const { return describe_block(graph_, plan_, id); }
  std::string name(BufferId id) const { return describe_buffer(graph_, id); }

  void look_at_part() {
    const Op op = graph_.op(op_);
    part_ = plan_.part(step_);
    workspace_ = op.workspace;
    cost_ = op.cost;
    if (!is_part()) return;
    axis_ = graph_.axis(op_, part_.axis);
    const PartCount& needs = *find_count(axis_, part_.part.count);
    workspace_ = needs.workspace;
    cost_ = needs.cost;
  }
  bool is_part() const { return part_.part.count > 1; }
  // What the step uses of an operand.
  Piece read_piece(std::size_t i) const { return is_part() ? piece(axis_.reads[i]) : Piece(); }
  Piece write_piece(std::size_t i) const { return is_part() ? piece(axis_.writes[i]) : Piece(); }
  Piece piece(Bytes period) const { return period == Bytes(0) ? Piece() : Piece{period, part_.part}; }

  // What happens before a step, or before the plan ends: see verify.h.
  Status prepare() {
    if (Status status = exchange_blocks(Where::tiers); !status.ok()) return status;
    if (Status status = move_contents(Where::tiers); !status.ok()) return status;
    if (Status status = exchange_blocks(Where::memory); !status.ok()) return status;
    return move_contents(Where::memory);
  }

  enum class Where : bool { memory, tiers };
  bool lies(BlockId id, Where where) const { return (plan_.blocks[id.index()].tier == 0) == (where == Where::memory); }

  Status exchange_blocks(Where where) {
    for (const BlockId id : ends_[step_.index()]) {
      if (lies(id, where)) give_back(id);
    }
    // What the op makes comes last: it may take over what is loaded here.
    for (const bool made : {false, true}) {
      for (const BlockId id : begins_[step_.index()]) {
        if (!lies(id, where) || is_made_here(id) != made) continue;
        if (Status status = take(id); !status.ok()) return status;
      }
    }
    return Done{};
  }

  bool is_made_here(BlockId id) const {
    return step_.index() < plan_.order.size() && is_given(plan_.writes[step_.index()], id);
  }

  // The transfers to there: those that are issued here begin, and then those that are waited for here are over.
  Status move_contents(Where where) {
    const std::vector<Transfer>& transfers = plan_.transfers;
    for (; next_transfer_ < transfers.size(); ++next_transfer_) {
      const Transfer& transfer = transfers[next_transfer_];
      if (transfer.issue != step_ || !lies(transfer.to, where)) break;
      if (Status status = begin_transfer(next_transfer_); !status.ok()) return status;
    }
    for (const std::size_t transfer : waits_[step_.index()]) {
      const BlockId to = transfers[transfer].to;
      if (!lies(to, where)) continue;
      const Flights::Flight flight = flights_.end(transfer);
      contents_.write(to, flight.content);
      clocks_.wait_until(flight.over);
    }
    return Done{};
  }

  Status begin_transfer(std::size_t index) {
    const auto& [from, to, issue, wait] = plan_.transfers[index];
    const bool store = tier_of(from) == 0;
    const auto refuse = [&](ErrorCode code, std::string_view verb, BlockId id, std::string_view why) {
      return wrong(code, "before step ", issue, ", transfer ", index, " ", verb, " ", name(id), ", which ", why);
    };
    const std::string_view moves = store ? "stores" : "loads";
    if (flights_.is_filled(from)) return refuse(ErrorCode::in_flight, moves, from, "a transfer still fills");
    if (flights_.is_filled(to)) return refuse(ErrorCode::in_flight, "fills", to, "another transfer still fills");
    if (flights_.is_read(to)) return refuse(ErrorCode::in_flight, "fills", to, "another transfer still reads");
    const std::optional<VersionId> content = contents_.finished(from);
    if (!content && contents_.is_empty(from)) return refuse(ErrorCode::read_before_write, moves, from, "holds nothing");
    if (!content) return refuse(ErrorCode::wrong_part, moves, from, "holds no version in whole");
    contents_.clear(to);
    const Bytes size = size_of(from);
    const Nanos over = store ? clocks_.begin_store(tier_of(to), size) : clocks_.begin_load(tier_of(from), size);
    flights_.begin(index, {*content, over});
    return Done{};
  }

  // Are `size` bytes at `offset` a place that the arena can give, which is that of `tier`? `id` is the block they are
  // for; none: the op's workspace.
  Status check_place(Bytes offset, Bytes size, std::uint32_t tier, std::optional<BlockId> id) const {
    const auto what = [&] { return id ? name(*id) : words(here(), ": its workspace"); };
    const std::optional<Bytes> end = checked_add(offset, size);
    if (!end) {
      return wrong(ErrorCode::address_overflow, what(), " of ", size, " bytes at offset ", offset,
                   " ends beyond 64 bits");
    }
    if (plan_.alignment == Bytes(0) || offset.count() % plan_.alignment.count() != 0) {
      return wrong(ErrorCode::misaligned, what(), " is at offset ", offset, ", not a multiple of ", plan_.alignment);
    }
    if (*end > stated_arena(tier)) {
      return wrong(ErrorCode::outside_arena, what(), " takes bytes ", range_text(offset, size), " of an arena of ",
                   stated_arena(tier), in_tier(tier));
    }
    return Done{};
  }

  Status take(BlockId id) {
    const Bytes offset = *plan_.blocks[id.index()].offset;
    const Bytes size = size_of(id);
    const std::uint32_t tier = tier_of(id);
    if (size == Bytes(0)) return Done{};
    if (Status status = check_place(offset, size, tier, id); !status.ok()) return status;
    Arena& arena = arenas_[tier];
    if (const std::optional<BlockId> other = arena.taken.find(offset, offset + size)) {
      if (tier == 0 && may_take_over(id, *other)) return take_over(id, *other);
      const Block& block = plan_.blocks[other->index()];
      return wrong(ErrorCode::block_overlap, here(), ": ", name(id), " begins on bytes ", range_text(offset, size),
                   in_tier(tier), ", but ", name(*other), " lives on ", range_text(*block.offset, size_of(*other)),
                   " until step ", block.end);
    }
    arena.taken.take(offset, offset + size, id);
    arena.live += size;
    arena.highest = std::max(arena.highest, offset + size);
    return Done{};
  }

  Status take_over(BlockId next, BlockId last) {
    if (flights_.is_read(last)) {
      return wrong(ErrorCode::in_flight, here(), ": ", name(next), " takes over the bytes of ", name(last),
                   ", which a transfer still reads");
    }
    const Bytes offset = *plan_.blocks[next.index()].offset;
    arenas_[0].taken.give_back(offset);
    arenas_[0].taken.take(offset, offset + size_of(next), next);
    taken_over_.push_back(last);
    return Done{};
  }

  static bool is_given(std::span<const BlockId> operands, BlockId block) {
    return std::ranges::find(operands, block) != operands.end();
  }

  // The op may make the content of `next` in the bytes of `last`, which nobody needs after it.
  bool may_take_over(BlockId next, BlockId last) const {
    const Block& from = plan_.blocks[last.index()];
    const Block& to = plan_.blocks[next.index()];
    const bool same_bytes = from.offset == to.offset && size_of(last) == size_of(next);
    if (!same_bytes || from.end != step_.next()) return false;
    const Op op = graph_.op(op_);
    return std::ranges::find(op.reuses, Reuse{from.buffer, to.buffer}) != op.reuses.end() &&
           is_given(plan_.reads[step_.index()], last) && is_given(plan_.writes[step_.index()], next) &&
           are_cut_alike(last, next);
  }

  // A part reads each byte before it writes there only where both are cut, and in the same places.
  bool are_cut_alike(BlockId read, BlockId written) const {
    if (!is_part()) return true;
    Bytes period;
    const std::span<const BlockId> writes = plan_.writes[step_.index()];
    const std::span<const BlockId> reads = plan_.reads[step_.index()];
    for (std::size_t i = 0; i < writes.size(); ++i) {
      if (writes[i] == written) period = axis_.writes[i];
    }
    for (std::size_t i = 0; i < reads.size(); ++i) {
      if (reads[i] == read && axis_.reads[i] != period) return false;
    }
    return period != Bytes(0);
  }

  void give_back(BlockId id) {
    const Bytes size = size_of(id);
    if (size == Bytes(0)) return;
    const Bytes offset = *plan_.blocks[id.index()].offset;
    Arena& arena = arenas_[tier_of(id)];
    if (arena.taken.find(offset, offset + size) != id) return;  // another has taken it over
    arena.taken.give_back(offset);
    arena.live -= size;
  }

  Status place_workspace() {
    const Bytes offset = plan_.workspaces[step_.index()];
    const Bytes size = workspace_;
    Arena& memory = arenas_[0];
    peak_ = std::max(peak_, memory.live + size);
    if (size == Bytes(0)) return Done{};
    if (Status status = check_place(offset, size, 0, std::nullopt); !status.ok()) return status;
    if (const std::optional<BlockId> other = memory.taken.find(offset, offset + size)) {
      return wrong(ErrorCode::workspace_overlap, here(), ": its workspace takes bytes ", range_text(offset, size),
                   ", but ", name(*other), " lives on ",
                   range_text(*plan_.blocks[other->index()].offset, size_of(*other)));
    }
    memory.highest = std::max(memory.highest, offset + size);
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
      const Piece piece = read_piece(i);
      if (Status status = check_access(read_blocks[i], buffer, piece, "reads"); !status.ok()) return status;
      if (leaves_alone(op, buffer)) continue;
      if (Status status = check_landed(read_blocks[i], "reads"); !status.ok()) return status;
      if (Status status = check_holds(read_blocks[i], piece, version, "reads"); !status.ok()) return status;
    }
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      const BufferId buffer = graph_.version(op.writes[i]).buffer;
      const BlockId block = write_blocks[i];
      const Piece piece = write_piece(i);
      if (Status status = check_access(block, buffer, piece, "writes"); !status.ok()) return status;
      if (leaves_alone(op, buffer)) continue;
      if (Status status = check_landed(block, "writes"); !status.ok()) return status;
      if (flights_.is_read(block)) {
        return wrong(ErrorCode::in_flight, here(), " writes ", name(block), ", which a transfer still reads");
      }
      const bool sums = is_part() && piece.period == Bytes(0);
      if (Status status = sums ? add(block, op.writes[i]) : write(block, piece, op.writes[i]); !status.ok())
        return status;
    }
    return Done{};
  }

  Status write(BlockId block, const Piece& piece, VersionId written) {
    const Version version = graph_.version(written);
    if (version.index > 0) {
      const VersionId previous = graph_.buffer(version.buffer).versions[version.index - 1];
      if (Status status = check_holds(block, piece, previous, "changes in place"); !status.ok()) return status;
    } else if (const Contents::Held held = contents_.look(block, piece); held.mixed || held.version) {
      return makes_on_content(block, held.version);
    }
    contents_.write(block, piece, written);
    return Done{};
  }

  Error makes_on_content(BlockId block, std::optional<VersionId> held) const {
    const std::string what = held ? words("version ", graph_.version(*held).index) : "other parts";
    return wrong(ErrorCode::block_made_twice, here(), " makes ", name(block), ", which holds ", what, " already");
  }

  // The first part makes the sum, and each further one comes when the one before has been added.
  Status add(BlockId block, VersionId written) {
    const Contents::Sum* sum = contents_.sum(block);
    if (sum == nullptr && !contents_.is_empty(block)) return makes_on_content(block, contents_.finished(block));
    const Contents::Sum next = sum != nullptr ? *sum : Contents::Sum{written, part_.axis, part_.part.count, 0};
    if (next.axis != part_.axis || next.count != part_.part.count || next.next != part_.part.index) {
      return wrong(ErrorCode::wrong_part, here(), " adds to ", name(block), ", but ",
                   describe_part({next.next, next.count}), " along axis ", next.axis, " is to be added first");
    }
    contents_.add(block, written, part_);
    return Done{};
  }

  // Run again, an op neither reads nor writes what it would change in resident buffers. check_form() has seen to it
  // that it can.
  bool leaves_alone(const Op& op, BufferId buffer) const {
    return again_ && !graph_.buffer(buffer).planned() &&
           std::ranges::any_of(op.writes, [&](VersionId write) { return graph_.version(write).buffer == buffer; });
  }

  Status check_landed(BlockId id, std::string_view verb) const {
    if (!flights_.is_filled(id)) return Done{};
    return wrong(ErrorCode::in_flight, here(), " ", verb, " ", name(id), ", which a transfer still fills");
  }

  // The block stands in for `buffer`, or has that piece of it, is alive in memory, and is the only one of that buffer
  // that the op is given.
  Status check_access(BlockId id, BufferId buffer, const Piece& piece, std::string_view verb) {
    const Block& block = plan_.blocks[id.index()];
    if (block.buffer != buffer) {
      return wrong(ErrorCode::wrong_block, here(), " ", verb, " ", name(buffer), " in ", name(id));
    }
    if (block.part.count > 1 && (block.part != piece.part || block.period != piece.period)) {
      return wrong(ErrorCode::wrong_part, here(), " ", verb, " ", words_of(piece), " of ", name(buffer), " in ",
                   name(id), words_of_period(block.period));
    }
    if (step_ < block.begin || block.end <= step_) {
      return wrong(ErrorCode::use_outside_life, here(), " ", verb, " ", name(id), ", which lives [", block.begin, ",",
                   block.end, ")");
    }
    if (block.tier != 0) {
      return wrong(ErrorCode::wrong_tier, here(), " ", verb, " ", name(id), in_tier(block.tier));
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

  Status check_holds(BlockId id, const Piece& piece, VersionId needed, std::string_view verb) const {
    const Contents::Held held = contents_.look(id, piece);
    if (!held.mixed && held.version == needed) return Done{};
    const std::string part = piece.part.count > 1 ? words_of(piece) + " of " : "";
    const std::string what =
        words(here(), " ", verb, " ", part, "version ", graph_.version(needed).index, " of ", name(id));
    if (held.mixed) return wrong(ErrorCode::wrong_part, what, ", which is not complete, or in other parts");
    if (!held.version) return wrong(ErrorCode::read_before_write, what, ", which nothing has written yet");
    return wrong(ErrorCode::wrong_version, what, ", which holds version ", graph_.version(*held.version).index);
  }

  // "part 0 of 2 with a period of 256", "the whole"
  static std::string words_of(const Piece& piece) {
    if (piece.part.count == 1) return "the whole";
    return words(describe_part(piece.part), words_of_period(piece.period));
  }
  static std::string words_of_period(Bytes period) { return words(" with a period of ", period); }

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
      const bool planned = graph_.buffer(block.buffer).planned();
      const bool counts = planned ? block.tier == 0 && block.end.index() == plan_.order.size() : !block.offset;
      if (counts && block.part.count == 1 && contents_.finished(id) == graph_.buffer(block.buffer).versions.back())
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
    std::vector<Bytes> resident(arenas_.size());  // by tier, memory first
    for (const Block& block : plan_.blocks) {
      if (!block.offset) resident[block.tier] += graph_.buffer(block.buffer).size;
    }
    const auto differs = [](ErrorCode code, const auto& what, auto stated, auto found) {
      return wrong(code, "the plan states ", what, " of ", stated, ", but it is ", found);
    };
    for (std::uint32_t tier = 0; tier < arenas_.size(); ++tier) {
      const Bytes arena = stated_arena(tier);
      if (arena != arenas_[tier].highest) {
        return differs(ErrorCode::wrong_arena, words("an arena", in_tier(tier)), arena, arenas_[tier].highest);
      }
      const Bytes stated = tier == 0 ? plan_.resident : plan_.tiers[tier - 1].resident;
      if (stated != resident[tier]) {
        return differs(ErrorCode::wrong_resident, words("resident bytes", in_tier(tier)), stated, resident[tier]);
      }
    }
    if (plan_.peak != peak_) return differs(ErrorCode::wrong_peak, "a peak", plan_.peak, peak_);
    if (plan_.time != clocks_.now()) return differs(ErrorCode::wrong_time, "a time", plan_.time, clocks_.now());
    if (plan_.bound > plan_.arena) {
      return wrong(ErrorCode::wrong_bound, "the plan states that no arena is smaller than ", plan_.bound,
                   ", but its own is ", plan_.arena);
    }
    return Done{};
  }

  std::uint32_t tier_of(BlockId id) const { return plan_.blocks[id.index()].tier; }
  Bytes stated_arena(std::uint32_t tier) const { return tier == 0 ? plan_.arena : plan_.tiers[tier - 1].arena; }
  // " in tier 1 'disk'"; nothing for memory.
  std::string in_tier(std::uint32_t tier) const { return tier == 0 ? "" : words(" in ", describe_tier(plan_, tier)); }
  Bytes size_of(BlockId id) const {
    const Block& block = plan_.blocks[id.index()];
    return block.bytes_of(graph_.buffer(block.buffer).size);
  }

  const Graph& graph_;
  const Plan& plan_;
  Lists<BlockId> begins_;     // by step
  Lists<BlockId> ends_;       // by step
  Lists<std::size_t> waits_;  // by step: transfers

  StepIndex step_;
  OpId op_;
  StepPart part_;
  Axis axis_;  // if it is a part
  Bytes workspace_;
  Nanos cost_;
  bool again_ = false;  // the op has run before, or the part
  FirstRuns runs_;
  struct Arena {
    Occupancy taken;
    Bytes live;
    Bytes highest;
  };
  std::vector<Arena> arenas_;        // memory's, and that of each tier
  std::vector<BlockId> taken_over_;  // at this step: their bytes are another block's now
  Contents contents_;
  std::vector<std::pair<StepIndex, std::optional<BlockId>>> seen_in_;  // by buffer: when it was last used, and where
  std::optional<OpId> last_random_;
  std::optional<OpId> last_collective_;

  std::size_t next_transfer_ = 0;  // the first that has not begun
  Flights flights_;
  Clocks clocks_;
  Bytes peak_;
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
