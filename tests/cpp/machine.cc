#include "machine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cells.h"
#include "part_bytes.h"
#include "plan_time.h"

namespace lowtide {
namespace {

constexpr std::size_t kWorkspace = static_cast<std::size_t>(-2);

struct Copy {
  Transfer transfer;
  Contents contents;  // as it began
};

class Machine {
 public:
  Machine(const Graph& graph, const Reference& reference, const Plan& plan)
      : graph_(graph),
        reference_(reference),
        plan_(plan),
        homes_(graph.num_buffers()),
        taken_(plan.blocks.size()),
        freed_(plan.blocks.size()),
        random_state_at_first_run_(graph.num_ops()),
        first_runs_(graph.num_ops()) {
    cells_.emplace_back(plan.arena.count());
    for (const Tier& tier : plan.tiers) cells_.emplace_back(tier.arena.count());
  }

  std::string run() {
    look_at_parts();
    if (!wrong_.empty()) return wrong_;
    look_at_tiers();
    bind_callers_memory();
    for (std::size_t now = 0; now <= plan_.order.size() && wrong_.empty(); ++now) {
      exchange(Side::tiers, now);
      copy(Side::tiers, now);
      exchange(Side::memory, now);
      copy(Side::memory, now);
      if (now < plan_.order.size() && wrong_.empty()) execute(now);
      watch_copies();
    }
    if (!wrong_.empty()) return wrong_;
    look_at_results();
    for (std::size_t b = 0; b < plan_.blocks.size(); ++b) {
      if (in_arena(b)) free_block(b, plan_.order.size());
      if (in_arena(b) && !freed_[b]) fail("a block outlives the step");
    }
    if (!copies_.empty() || next_copy_ < plan_.transfers.size()) fail("a copy outlives the step");
    for (const FirstRun& run : first_runs_) {
      if (run.indices.empty()) fail("an op did not run");
      if (run.indices.size() < run.how.part.count) fail("a part did not run");
    }
    look_at_figures();
    return wrong_;
  }

 private:
  enum class Side : bool { memory, tiers };

  void fail(const char* what) {
    if (wrong_.empty()) wrong_ = what;
  }
  bool in_memory(std::size_t block) const { return plan_.blocks[block].tier == 0; }
  bool is_on(Side side, std::size_t block) const { return in_memory(block) == (side == Side::memory); }
  Cells& cells_of(std::size_t block) { return cells_[plan_.blocks[block].tier]; }
  const Cells& cells_of(std::size_t block) const { return cells_[plan_.blocks[block].tier]; }

  bool in_arena(std::size_t block) const { return plan_.blocks[block].offset.has_value(); }
  // The bytes of its buffer that a block has, in the order in which it has them.
  std::vector<std::size_t> bytes_in(std::size_t block) const {
    const Block& has = plan_.blocks[block];
    return bytes_of_part(graph_.buffer(has.buffer).size, has.period, has.part);
  }
  std::size_t size_of(std::size_t block) const { return bytes_in(block).size(); }
  bool is_whole(std::size_t block) const { return plan_.blocks[block].part.count == 1; }

  // Is there a cut like that?
  void look_at_parts() {
    const auto is_no_part = [](const Part& part) { return part.index >= part.count; };
    for (const Block& block : plan_.blocks) {
      const std::uint64_t period = block.period.count();
      if (is_no_part(block.part) || (block.part.count == 1) != (period == 0)) return fail("a block is of no part");
      if (period == 0) continue;
      if (period % block.part.count != 0 || graph_.buffer(block.buffer).size.count() % period != 0)
        return fail("a part of a block has no whole bytes");
      if (!block.offset) return fail("the caller has all of it");
    }
    for (std::size_t i = 0; i < plan_.parts.size(); ++i) {
      const auto& [axis, part] = plan_.parts[i];
      if (part == Part() && axis == 0) continue;
      if (is_no_part(part)) return fail("a step runs no part");
      if (part_count(graph_, plan_.order[i], plan_.parts[i]) == nullptr) return fail("an op has no such parts");
      for (const Edge& edge : graph_.edges()) {
        if (edge.before == plan_.order[i] || edge.after == plan_.order[i]) fail("a part of an op has an edge");
      }
    }
  }

  void look_at_tiers() {
    for (const Tier& tier : plan_.tiers) {
      if (tier.link.store_per_second == Bytes(0) || tier.link.load_per_second == Bytes(0)) fail("a link stands still");
    }
    for (const Block& block : plan_.blocks) {
      if (block.tier > plan_.tiers.size()) fail("a block is nowhere");
    }
    for (const Transfer& transfer : plan_.transfers) {
      const std::size_t from = transfer.from.index();
      const std::size_t to = transfer.to.index();
      if (std::max(from, to) >= plan_.blocks.size()) return fail("a copy has no end");
      if (plan_.blocks[from].buffer != plan_.blocks[to].buffer) fail("a copy is of another buffer");
      if (in_memory(from) == in_memory(to)) fail("a copy has no link");
      if (bytes_in(from) != bytes_in(to)) fail("a copy is of other parts");
    }
  }

  // The caller lends the memory of each resident buffer, once and for the whole step: its home, wherever that is.
  void bind_callers_memory() {
    for (std::size_t b = 0; b < plan_.blocks.size(); ++b) {
      const Block& block = plan_.blocks[b];
      if (in_arena(b)) continue;
      const Buffer buffer = graph_.buffer(block.buffer);
      if (buffer.residence == Residence::planned) fail("the caller is asked for what is not the caller's");
      if (block.begin.index() != 0 || block.end.index() != plan_.order.size())
        fail("the caller's memory is there all the time");
      if (homes_[block.buffer.index()]) fail("the caller's memory is bound twice");
      homes_[block.buffer.index()] = b;
      const bool starts_full = !graph_.version(buffer.versions[0]).writer;
      callers_[b] = starts_full ? initial_contents(graph_, block.buffer) : Contents(buffer.size.count(), kPoison);
    }
    for (std::size_t buffer = 0; buffer < graph_.num_buffers(); ++buffer) {
      const bool callers = graph_.buffer(BufferId(buffer)).residence == Residence::resident;
      if (callers && !homes_[buffer]) fail("the caller's memory is not bound");
    }
    for (std::size_t b = 0; b < plan_.blocks.size(); ++b) {
      const std::optional<std::size_t> home = homes_[plan_.blocks[b].buffer.index()];
      if (!in_arena(b) || !home) continue;
      if (in_memory(*home) || !in_memory(b)) fail("a copy of the caller's memory is of no use");
    }
  }

  // Blocks come and go. What is there when the last op has run stays.
  void exchange(Side side, std::size_t now) {
    if (now == plan_.order.size() || !wrong_.empty()) return;
    for (std::size_t b = 0; b < plan_.blocks.size(); ++b) {
      if (in_arena(b) && is_on(side, b)) free_block(b, now);
    }
    // An op's results come last, which may inherit what is loaded for it.
    for (const bool results : {false, true}) {
      for (std::size_t b = 0; b < plan_.blocks.size(); ++b) {
        if (!in_arena(b) || !is_on(side, b) || plan_.blocks[b].begin.index() != now) continue;
        const std::span<const BlockId> written = plan_.writes[now];
        if ((std::ranges::find(written, BlockId(b)) != written.end()) == results) take_block(b, now);
      }
    }
    watch_copies();
  }

  void free_block(std::size_t block, std::size_t now) {
    if (plan_.blocks[block].end.index() != now) return;
    if (!taken_[block]) fail("a block is freed that is not there");
    freed_[block] = true;
    cells_of(block).release(block);
  }

  void take_block(std::size_t block, std::size_t now) {
    taken_[block] = true;
    if (const std::optional<std::size_t> giver = giver_of(block, now)) {
      heirs_.emplace_back(*giver, block);
    } else {
      acquire(cells_of(block), block, *plan_.blocks[block].offset, size_of(block));
    }
  }

  void acquire(Cells& cells, std::size_t owner, Bytes offset, std::size_t size) {
    if (const char* wrong = cells.acquire(owner, offset.count(), size)) fail(wrong);
  }

  // Copies to that side begin, in the order of their list, and others are over.
  void copy(Side side, std::size_t now) {
    for (; wrong_.empty() && next_copy_ < plan_.transfers.size(); ++next_copy_) {
      const Transfer& next = plan_.transfers[next_copy_];
      if (next.issue.index() != now || !is_on(side, next.to.index())) break;
      begin_copy(next, now);
      watch_copies();
    }
    for (std::size_t i = 0; wrong_.empty() && i < copies_.size();) {
      const Copy done = copies_[i];
      if (done.transfer.wait.index() != now || !is_on(side, done.transfer.to.index())) {
        ++i;
        continue;
      }
      copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(i));
      end_copy(done, now);
      watch_copies();
    }
  }

  void begin_copy(const Transfer& transfer, std::size_t now) {
    const std::size_t from = transfer.from.index();
    const std::size_t to = transfer.to.index();
    const std::optional<Contents> contents = load(from, size_of(from));
    if (!contents) return fail("a copy is of bytes not its block's");
    if (std::ranges::count(*contents, kPoison) > 0) return fail("a copy is of nothing");
    if (!is_finished(from)) return fail("a copy is of something half done");
    if (now == plan_.order.size() && in_arena(to)) return fail("a copy begins when there is no step left to use it");
    if (!store(to, Contents(contents->size(), kPoison))) return fail("a copy is to bytes not its block's");
    cuts_.erase(to);
    copies_.push_back({transfer, *contents});
  }

  void end_copy(const Copy& done, std::size_t now) {
    const std::size_t from = done.transfer.from.index();
    if (now == plan_.order.size() && !in_memory(from) && in_arena(from)) fail("a copy is of a place that is gone");
    store(done.transfer.to.index(), done.contents);
  }

  // A copy that is under way can read and write any byte now.
  void watch_copies() {
    for (const Copy& copy : copies_) {
      const std::size_t size = copy.contents.size();
      if (load(copy.transfer.from.index(), size) != copy.contents) fail("what is copied changes");
      if (load(copy.transfer.to.index(), size) != Contents(size, kPoison)) fail("a copy falls on something");
    }
  }

  // The block that has the bytes of `block` now, if the op that runs may leave its result there and frees it.
  std::optional<std::size_t> giver_of(std::size_t block, std::size_t now) const {
    const std::size_t start = plan_.blocks[block].offset->count();
    const std::size_t size = size_of(block);
    const std::size_t giver = cells_[0].owner_at(start);
    if (!in_memory(block) || size == 0 || giver >= plan_.blocks.size()) return std::nullopt;
    const Block& from = plan_.blocks[giver];
    if (*from.offset != Bytes(start) || size_of(giver) != size || from.end.index() != now + 1) return std::nullopt;
    if (std::ranges::count(plan_.reads[now], BlockId(giver)) == 0) return std::nullopt;
    if (std::ranges::count(plan_.writes[now], BlockId(block)) == 0) return std::nullopt;
    if (!is_each_byte_read_before(giver, block, now)) return std::nullopt;
    for (const Reuse& reuse : graph_.op(plan_.order[now]).reuses) {
      if (reuse.from == from.buffer && reuse.to == plan_.blocks[block].buffer) return giver;
    }
    return std::nullopt;
  }

  // Of a part, where the operand and the result are the same bytes of their buffers, and not all of them.
  bool is_each_byte_read_before(std::size_t read, std::size_t written, std::size_t now) const {
    const StepPart how = part_at(now);
    if (how.part.count == 1) return true;
    const Axis axis = graph_.axis(plan_.order[now], how.axis);
    std::set<Bytes> periods;
    for (std::size_t i = 0; i < plan_.reads[now].size(); ++i) {
      if (plan_.reads[now][i].index() == read) periods.insert(axis.reads[i]);
    }
    for (std::size_t i = 0; i < plan_.writes[now].size(); ++i) {
      if (plan_.writes[now][i].index() == written) periods.insert(axis.writes[i]);
    }
    return periods.size() == 1 && *periods.begin() > Bytes(0);
  }

  StepPart part_at(std::size_t now) const { return plan_.parts.empty() ? StepPart() : plan_.parts[now]; }

  // Once the op has read everything, results lie where operands did.
  void pass_on() {
    for (const auto& [giver, heir] : heirs_) cells_[0].pass_on(giver, heir);
    heirs_.clear();
  }

  // All bytes that an operand of `size` bytes has in `block`, if they are the block's own.
  std::optional<Contents> load(std::size_t block, std::size_t size) const {
    if (!in_arena(block)) {
      const Contents& memory = callers_.at(block);
      if (memory.size() < size) return std::nullopt;
      return Contents(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(size));
    }
    return cells_of(block).read(block, plan_.blocks[block].offset->count(), size);
  }

  bool store(std::size_t block, const Contents& contents) {
    if (!load(block, contents.size())) return false;
    if (in_arena(block)) {
      cells_of(block).write(plan_.blocks[block].offset->count(), contents);
    } else {
      std::ranges::copy(contents, callers_[block].begin());
    }
    return true;
  }

  // Some bytes of an operand, where a step finds them. Not in a block of other parts.
  std::optional<Contents> load(std::size_t block, const std::vector<std::size_t>& bytes) const {
    const std::optional<Contents> all = load(block, size_of(block));
    if (!all || (!is_whole(block) && bytes_in(block) != bytes)) return std::nullopt;
    if (!is_whole(block)) return all;
    Contents some;
    for (const std::size_t byte : bytes) {
      if (byte >= all->size()) return std::nullopt;
      some.push_back((*all)[byte]);
    }
    return some;
  }

  void store(std::size_t block, const std::vector<std::size_t>& bytes, const Contents& contents) {
    if (!is_whole(block)) {
      store(block, contents);
      return;
    }
    Contents all = *load(block, size_of(block));
    for (std::size_t i = 0; i < bytes.size(); ++i) all[bytes[i]] = contents[i];
    store(block, all);
  }

  static Contents some_of(const Contents& all, const std::vector<std::size_t>& bytes) {
    Contents some;
    for (const std::size_t byte : bytes) some.push_back(all[byte]);
    return some;
  }

  // Has it one version in all of its bytes?
  bool is_finished(std::size_t block) const {
    const std::optional<Contents> contents = load(block, size_of(block));
    const std::vector<std::size_t> bytes = bytes_in(block);
    const std::span<const VersionId> versions = graph_.buffer(plan_.blocks[block].buffer).versions;
    return contents && std::ranges::any_of(versions, [&](VersionId version) {
             return some_of(reference_.of(version), bytes) == *contents;
           });
  }

  // Parts that were written in a block are there for those who cut them alike, until the block is finished.
  bool is_cut_alike(std::size_t block, Bytes period, std::uint32_t count) const {
    const auto cut = cuts_.find(block);
    return cut == cuts_.end() || cut->second == std::pair(period, count);
  }

  // What the first parts of a sum come to, in place of `whole`, which all of them do.
  static Contents sum_so_far(Contents whole, const StepPart& last) {
    if (last.part.index + 1 == last.part.count) return whole;
    const Tag parts = (Tag{last.axis} << 32) + (last.part.index << 8) + last.part.count + 1;
    for (Tag& tag : whole) tag = tag * 31 + parts;
    return whole;
  }

  void execute(std::size_t now) {
    const OpId id = plan_.order[now];
    const Op op = graph_.op(id);
    const StepPart how = part_at(now);
    const bool in_parts = how.part.count > 1;
    const Axis axis = in_parts ? graph_.axis(id, how.axis) : Axis();
    const bool again = !belongs_to_first_run(id, how);
    std::optional<Tag>& first_state = random_state_at_first_run_[id.index()];
    if (again) look_at_repeat(id);
    if (!first_state) first_state = random_state_;
    for (const Edge& edge : graph_.edges()) {
      const bool follows = random_state_at_first_run_[edge.before.index()].has_value();
      if (edge.after == id && !follows) return fail("an op runs before one it must follow");
    }
    const Bytes workspace = in_parts ? part_count(graph_, id, how)->workspace : op.workspace;
    if (workspace.count() > 0) acquire(cells_[0], kWorkspace, plan_.workspaces[now], workspace.count());
    if (!wrong_.empty()) return;

    Inputs inputs(graph_, op);
    if (op.flags.random) {
      // The generator is set back for a run that is not the first, and stands afterwards where it stood before.
      if (*first_state != reference_.random_state_before(id)) return fail("other random numbers are drawn");
      inputs.add_state(*first_state);
      if (!again) random_state_ = state_after(random_state_, id);
    }
    if (op.flags.collective) {
      if (network_state_ != reference_.network_state_before(id)) return fail("other ranks are at another collective");
      inputs.add_state(network_state_);
      network_state_ = state_after(network_state_, id);
    }
    const auto left_out = [&](BufferId buffer) { return again && can_be_left_out(graph_, op, buffer); };
    // The bytes of a buffer that this step uses.
    const auto used = [&](BufferId buffer, Bytes period) {
      return bytes_of_part(graph_.buffer(buffer).size, period, period == Bytes(0) ? Part() : how.part);
    };
    std::map<BufferId, BlockId> addresses;
    const auto reach = [&](BufferId buffer, BlockId block, Bytes period) {
      if (addresses.emplace(buffer, block).first->second != block) fail("an argument has two addresses");
      if (!in_memory(block.index())) fail("an op cannot reach its argument");
      if (!is_whole(block.index()) && bytes_in(block.index()) != used(buffer, period)) fail("an op uses another part");
    };
    const auto find = [&](VersionId version, BlockId block, Bytes period, const char* otherwise) {
      const std::vector<std::size_t> bytes = used(graph_.version(version).buffer, period);
      const std::optional<Contents> found = load(block.index(), bytes);
      if (!found || *found != some_of(reference_.of(version), bytes)) return fail(otherwise);
      if (period != Bytes(0) && !is_cut_alike(block.index(), period, how.part.count)) return fail("parts are mixed");
      if (!in_parts) inputs.add(graph_.version(version).buffer, *found);
    };
    for (std::size_t i = 0; i < op.reads.size() && wrong_.empty(); ++i) {
      const VersionId version = graph_.value(op.reads[i]).version;
      const BufferId buffer = graph_.version(version).buffer;
      const Bytes period = in_parts ? axis.reads[i] : Bytes(0);
      reach(buffer, plan_.reads[now][i], period);
      if (!left_out(buffer)) find(version, plan_.reads[now][i], period, "an op reads something else");
    }
    for (std::size_t i = 0; i < op.writes.size() && wrong_.empty(); ++i) {
      const Version version = graph_.version(op.writes[i]);
      const Bytes period = in_parts ? axis.writes[i] : Bytes(0);
      reach(version.buffer, plan_.writes[now][i], period);
      if (version.index == 0 || left_out(version.buffer)) continue;
      const VersionId previous = graph_.buffer(version.buffer).versions[version.index - 1];
      find(previous, plan_.writes[now][i], period, "an op changes something else in place");
    }
    if (!wrong_.empty()) return;
    pass_on();
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      const std::size_t block = plan_.writes[now][i].index();
      const Version version = graph_.version(op.writes[i]);
      const Bytes period = in_parts ? axis.writes[i] : Bytes(0);
      if (plan_.blocks[block].buffer != version.buffer) return fail("an op writes over another buffer");
      const std::vector<std::size_t> bytes = used(version.buffer, period);
      const std::optional<Contents> before = load(block, bytes);
      if (!before) return fail("an op is given bytes not its own");
      if (left_out(version.buffer)) continue;
      Contents result = in_parts ? some_of(reference_.of(op.writes[i]), bytes)
                                 : computed(id, i, inputs.of(version.buffer), bytes.size());
      const bool sums = in_parts && period == Bytes(0);
      if (sums && how.part.index > 0) {
        const StepPart last{how.axis, {how.part.index - 1, how.part.count}};
        if (*before != sum_so_far(result, last)) return fail("a part is added to something else");
      } else if (version.index == 0 && std::ranges::count(*before, kPoison) != std::ssize(bytes)) {
        return fail("a result is made on another");
      }
      if (sums) result = sum_so_far(result, how);
      if (!sums && in_parts && !is_cut_alike(block, period, how.part.count)) return fail("parts are mixed");
      store(block, bytes, result);
      if (!sums && in_parts && !is_finished(block)) {
        cuts_[block] = {period, how.part.count};
      } else {
        cuts_.erase(block);
      }
    }
    cells_[0].release(kWorkspace);
  }

  bool belongs_to_first_run(OpId id, const StepPart& how) {
    FirstRun& run = first_runs_[id.index()];
    if (run.indices.empty()) run.how = {how.axis, {0, how.part.count}};
    return run.how == StepPart{how.axis, {0, how.part.count}} && run.indices.insert(how.part.index).second;
  }

  // What memory does not show: the world sees the op run, or it runs for nothing.
  void look_at_repeat(OpId id) {
    const Op op = graph_.op(id);
    if (op.flags.must_not_recompute) fail("an op runs again that must not");
    for (const Edge& edge : graph_.edges()) {
      if (edge.before == id || edge.after == id) fail("an op runs again that others wait for or follow");
    }
    const bool makes_something = std::ranges::any_of(op.writes, [&](VersionId write) {
      return graph_.buffer(graph_.version(write).buffer).residence == Residence::planned;
    });
    if (!makes_something) fail("an op runs again and makes nothing");
  }

  void look_at_results() {
    for (std::size_t i = 0; i < graph_.num_buffers(); ++i) {
      const Buffer buffer = graph_.buffer(BufferId(i));
      if (!buffer.kept) continue;
      const Contents& expected = reference_.of(buffer.versions.back());
      bool found = false;
      for (std::size_t b = 0; b < plan_.blocks.size(); ++b) {
        const bool counts = homes_[i] ? homes_[i] == b : in_memory(b);
        if (plan_.blocks[b].buffer == BufferId(i) && counts) found = found || load(b, expected.size()) == expected;
      }
      if (!found) fail("a result is not there");
    }
  }

  void look_at_figures() {
    std::vector<std::uint64_t> resident(cells_.size());
    for (const auto& [home, contents] : callers_) resident[plan_.blocks[home].tier] += contents.size();
    if (plan_.arena.count() != cells_[0].high_water()) fail("the arena is not as large as stated");
    if (plan_.peak.count() != cells_[0].most_in_use()) fail("the peak is not as stated");
    if (plan_.resident.count() != resident[0]) fail("the resident bytes are not as stated");
    if (plan_.time != time_of(graph_, plan_)) fail("the time is not as stated");
    if (plan_.bound.count() > cells_[0].high_water()) fail("the arena is below the bound");
    for (std::size_t i = 0; i < plan_.tiers.size(); ++i) {
      const Tier& tier = plan_.tiers[i];
      if (tier.arena.count() != cells_[i + 1].high_water()) fail("the arena of a tier is not as large as stated");
      if (tier.resident.count() != resident[i + 1]) fail("the resident bytes of a tier are not as stated");
    }
  }

  const Graph& graph_;
  const Reference& reference_;
  const Plan& plan_;
  std::vector<Cells> cells_;                                   // memory's, and those of each tier
  std::map<std::size_t, Contents> callers_;                    // by block: resident memory
  std::vector<std::optional<std::size_t>> homes_;              // by buffer: the block of its resident memory
  std::vector<bool> taken_;                                    // by block
  std::vector<bool> freed_;                                    // by block
  std::vector<Copy> copies_;                                   // under way
  std::size_t next_copy_ = 0;                                  // the first that has not begun
  std::vector<std::optional<Tag>> random_state_at_first_run_;  // by op; none: it has not run
  struct FirstRun {
    StepPart how;  // of part 0
    std::set<std::uint32_t> indices;
  };
  std::vector<FirstRun> first_runs_;                             // by op
  std::map<std::size_t, std::pair<Bytes, std::uint32_t>> cuts_;  // by block in the midst of it: period and count
  std::vector<std::pair<std::size_t, std::size_t>>
      heirs_;  // at this step: a block, and the one that has its bytes next
  Tag random_state_ = kStart;
  Tag network_state_ = kStart;
  std::string wrong_;
};

}  // namespace

std::string run_on_machine(const Graph& graph, const Reference& reference, const Plan& plan) {
  return Machine(graph, reference, plan).run();
}

}  // namespace lowtide
