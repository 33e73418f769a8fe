#include "machine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace lowtide {
namespace {

Tag mix(Tag a, Tag b) {
  Tag x = a * 0x9E3779B97F4A7C15u + b;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  return x ^ (x >> 32);
}

Tag digest(Tag seed, const Contents& contents) {
  for (const Tag tag : contents) seed = mix(seed, tag);
  return seed;
}

Contents filled(Tag seed, std::size_t size) {
  Contents contents(size);
  for (std::size_t i = 0; i < size; ++i) contents[i] = mix(seed, i);
  return contents;
}

Contents initial_contents(const Graph& graph, BufferId buffer) {
  return filled(mix(1, buffer.value()), graph.buffer(buffer).size.count());
}

// What an op computes from all that it sees.
Contents computed(OpId op, std::size_t output, Tag inputs, std::size_t size) {
  return filled(mix(mix(2 + op.value(), output), inputs), size);
}

// Something that the op changes for the caller and can leave out when it runs again: no other result depends on it.
bool can_be_left_out(const Graph& graph, const Op& op, BufferId buffer) {
  if (!op.flags.may_skip_updates || graph.buffer(buffer).residence != Residence::resident) return false;
  return std::ranges::any_of(op.writes, [&](VersionId write) {
    return graph.version(write).buffer == buffer && graph.version(write).index > 0;
  });
}

// All that an op sees: what its results depend on, and what its updates do.
class Inputs {
 public:
  Inputs(const Graph& graph, const Op& op) : graph_(graph), op_(op) {}

  void add_state(Tag state) { for_results_ = for_updates_ = mix(for_updates_, state); }
  void add(BufferId buffer, const Contents& contents) {
    if (!can_be_left_out(graph_, op_, buffer)) for_results_ = digest(for_results_, contents);
    for_updates_ = digest(for_updates_, contents);
  }
  Tag of(BufferId written) const { return can_be_left_out(graph_, op_, written) ? for_updates_ : for_results_; }

 private:
  const Graph& graph_;
  const Op& op_;
  Tag for_results_ = 0;
  Tag for_updates_ = 0;
};

constexpr Tag kStart = 1;  // of the generator and the network; not 0, from which op 0 would lead nowhere
constexpr std::size_t kNobody = static_cast<std::size_t>(-1);
constexpr std::size_t kWorkspace = static_cast<std::size_t>(-2);
constexpr Tag kPoison = 0xDEADDEADDEADDEADu;

struct Cell {
  std::size_t owner = kNobody;
  Tag tag = kPoison;
};

class Machine {
 public:
  Machine(const Graph& graph, const Reference& reference, const Plan& plan)
      : graph_(graph),
        reference_(reference),
        plan_(plan),
        arena_(plan.arena.count()),
        random_state_at_first_run_(graph.num_ops()) {}

  std::string run() {
    bind_callers_memory();
    std::vector<int> taken(plan_.blocks.size());
    for (std::size_t now = 0; now <= plan_.order.size() && wrong_.empty(); ++now) {
      if (now == plan_.order.size()) look_at_results();
      for (std::size_t b = 0; b < plan_.blocks.size(); ++b) {
        if (!in_arena(b) || plan_.blocks[b].end.index() != now) continue;
        if (taken[b] != 1) fail("a block is freed that is not there");
        taken[b] = 2;
        release(b);
      }
      if (now == plan_.order.size()) break;
      for (std::size_t b = 0; b < plan_.blocks.size(); ++b) {
        if (!in_arena(b) || plan_.blocks[b].begin.index() != now) continue;
        taken[b] = 1;
        if (const std::optional<std::size_t> giver = giver_of(b, now)) {
          heirs_.emplace_back(*giver, b);
        } else {
          acquire(b, *plan_.blocks[b].offset, size_of(b));
        }
      }
      if (wrong_.empty()) execute(now);
    }
    for (std::size_t b = 0; b < plan_.blocks.size(); ++b) {
      if (in_arena(b) && taken[b] != 2) fail("a block outlives the step");
    }
    if (std::ranges::count(random_state_at_first_run_, std::optional<Tag>()) > 0) fail("an op did not run");
    look_at_figures();
    return wrong_;
  }

 private:
  void fail(const char* what) {
    if (wrong_.empty()) wrong_ = what;
  }

  bool in_arena(std::size_t block) const { return plan_.blocks[block].offset.has_value(); }
  std::size_t size_of(std::size_t block) const { return graph_.buffer(plan_.blocks[block].buffer).size.count(); }

  // The caller lends the memory of each resident buffer, once and for the whole step.
  void bind_callers_memory() {
    for (std::size_t b = 0; b < plan_.blocks.size(); ++b) {
      const Block& block = plan_.blocks[b];
      const Buffer buffer = graph_.buffer(block.buffer);
      if (in_arena(b) == (buffer.residence == Residence::resident)) fail("memory is sought on the wrong side");
      if (in_arena(b)) continue;
      if (block.begin.index() != 0 || block.end.index() != plan_.order.size())
        fail("the caller's memory is there all the time");
      const bool starts_full = !graph_.version(buffer.versions[0]).writer;
      Contents contents = starts_full ? initial_contents(graph_, block.buffer) : Contents(buffer.size.count(), kPoison);
      if (owner_of_caller_memory_.contains(block.buffer.value())) fail("the caller's memory is bound twice");
      owner_of_caller_memory_[block.buffer.value()] = b;
      callers_[b] = std::move(contents);
    }
    for (std::size_t buffer = 0; buffer < graph_.num_buffers(); ++buffer) {
      const bool callers = graph_.buffer(BufferId(buffer)).residence == Residence::resident;
      const auto key = static_cast<std::uint32_t>(buffer);
      if (callers && !owner_of_caller_memory_.contains(key)) fail("the caller's memory is not bound");
    }
  }

  void acquire(std::size_t owner, Bytes offset, std::size_t size) {
    const std::size_t start = offset.count();
    if (start % 64 != 0) return fail("an address is not aligned");
    if (start > arena_.size() || size > arena_.size() - start) return fail("an address is not in the arena");
    for (std::size_t i = start; i < start + size; ++i) {
      if (arena_[i].owner != kNobody) return fail("a byte has an owner already");
    }
    for (std::size_t i = start; i < start + size; ++i) arena_[i] = {owner, kPoison};
    in_use_ += size;
    most_in_use_ = std::max(most_in_use_, in_use_);
    high_water_ = std::max(high_water_, start + size);
  }

  // The block that has the bytes of `block` now, if the op that runs may leave its result there and frees it.
  std::optional<std::size_t> giver_of(std::size_t block, std::size_t now) const {
    const std::size_t start = plan_.blocks[block].offset->count();
    const std::size_t size = size_of(block);
    if (size == 0 || start >= arena_.size() || arena_[start].owner >= plan_.blocks.size()) return std::nullopt;
    const std::size_t giver = arena_[start].owner;
    const Block& from = plan_.blocks[giver];
    if (*from.offset != Bytes(start) || size_of(giver) != size || from.end.index() != now + 1) return std::nullopt;
    if (std::ranges::count(plan_.reads[now], BlockId(giver)) == 0) return std::nullopt;
    if (std::ranges::count(plan_.writes[now], BlockId(block)) == 0) return std::nullopt;
    for (const Reuse& reuse : graph_.op(plan_.order[now]).reuses) {
      if (reuse.from == from.buffer && reuse.to == plan_.blocks[block].buffer) return giver;
    }
    return std::nullopt;
  }

  // Once the op has read everything, results lie where operands did.
  void pass_on() {
    for (const auto& [giver, heir] : heirs_) {
      for (Cell& cell : arena_) {
        if (cell.owner == giver) cell = {heir, kPoison};
      }
    }
    heirs_.clear();
  }

  void release(std::size_t owner) {
    for (Cell& cell : arena_) {
      if (cell.owner != owner) continue;
      cell = {};
      --in_use_;
    }
  }

  // All bytes that an operand of `size` bytes has in `block`, if they are the block's own.
  std::optional<Contents> load(std::size_t block, std::size_t size) const {
    if (!in_arena(block)) {
      const Contents& memory = callers_.at(block);
      if (memory.size() < size) return std::nullopt;
      return Contents(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(size));
    }
    Contents contents(size);
    const std::size_t start = plan_.blocks[block].offset->count();
    for (std::size_t i = 0; i < size; ++i) {
      if (start + i >= arena_.size() || arena_[start + i].owner != block) return std::nullopt;
      contents[i] = arena_[start + i].tag;
    }
    return contents;
  }

  bool store(std::size_t block, const Contents& contents) {
    if (!load(block, contents.size())) return false;
    for (std::size_t i = 0; i < contents.size(); ++i) {
      if (in_arena(block)) {
        arena_[plan_.blocks[block].offset->count() + i].tag = contents[i];
      } else {
        callers_[block][i] = contents[i];
      }
    }
    return true;
  }

  void execute(std::size_t now) {
    const OpId id = plan_.order[now];
    const Op op = graph_.op(id);
    std::optional<Tag>& first_state = random_state_at_first_run_[id.index()];
    const bool again = first_state.has_value();
    if (again) look_at_repeat(id);
    if (!again) first_state = random_state_;
    for (const Edge& edge : graph_.edges()) {
      const bool follows = random_state_at_first_run_[edge.before.index()].has_value();
      if (edge.after == id && !follows) return fail("an op runs before one it must follow");
    }
    if (op.workspace.count() > 0) acquire(kWorkspace, plan_.workspaces[now], op.workspace.count());
    if (!wrong_.empty()) return;

    Inputs inputs(graph_, op);
    if (op.flags.random) {
      // The generator is set back for a run that is not the first, and stands afterwards where it stood before.
      if (*first_state != reference_.random_state_before(id)) return fail("other random numbers are drawn");
      inputs.add_state(*first_state);
      if (!again) random_state_ = mix(random_state_, id.value());
    }
    if (op.flags.collective) {
      if (network_state_ != reference_.network_state_before(id)) return fail("other ranks are at another collective");
      inputs.add_state(network_state_);
      network_state_ = mix(network_state_, id.value());
    }
    const auto left_out = [&](BufferId buffer) { return again && can_be_left_out(graph_, op, buffer); };
    std::map<BufferId, BlockId> addresses;
    for (std::size_t i = 0; i < op.reads.size(); ++i) {
      const VersionId version = graph_.value(op.reads[i]).version;
      const BufferId buffer = graph_.version(version).buffer;
      const BlockId block = plan_.reads[now][i];
      if (addresses.emplace(buffer, block).first->second != block) return fail("an argument has two addresses");
      if (left_out(buffer)) continue;
      const Contents& expected = reference_.of(version);
      const std::optional<Contents> found = load(block.index(), expected.size());
      if (!found || *found != expected) return fail("an op reads something else");
      inputs.add(buffer, *found);
    }
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      const Version version = graph_.version(op.writes[i]);
      const BlockId block = plan_.writes[now][i];
      if (addresses.emplace(version.buffer, block).first->second != block) return fail("an argument has two addresses");
      if (version.index == 0 || left_out(version.buffer)) continue;
      const Contents& expected = reference_.of(graph_.buffer(version.buffer).versions[version.index - 1]);
      const std::optional<Contents> found = load(block.index(), expected.size());
      if (!found || *found != expected) return fail("an op changes something else in place");
      inputs.add(version.buffer, *found);
    }
    pass_on();
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      const std::size_t block = plan_.writes[now][i].index();
      const Version version = graph_.version(op.writes[i]);
      const std::size_t size = graph_.buffer(version.buffer).size.count();
      if (plan_.blocks[block].buffer != version.buffer) return fail("an op writes over another buffer");
      if (left_out(version.buffer)) continue;
      if (version.index == 0 && load(block, size) != Contents(size, kPoison))
        return fail("a result is made on another");
      if (!store(block, computed(id, i, inputs.of(version.buffer), size)))
        return fail("an op writes bytes not its own");
    }
    release(kWorkspace);
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
        if (plan_.blocks[b].buffer == BufferId(i)) found = found || load(b, expected.size()) == expected;
      }
      if (!found) fail("a result is not there");
    }
  }

  void look_at_figures() {
    std::uint64_t resident = 0;
    std::uint64_t time = 0;
    for (std::size_t i = 0; i < graph_.num_buffers(); ++i) {
      const Buffer buffer = graph_.buffer(BufferId(i));
      if (buffer.residence == Residence::resident) resident += buffer.size.count();
    }
    for (const OpId op : plan_.order) time += graph_.op(op).cost.count();
    if (plan_.arena.count() != high_water_) fail("the arena is not as large as stated");
    if (plan_.peak.count() != most_in_use_) fail("the peak is not as stated");
    if (plan_.resident.count() != resident) fail("the resident bytes are not as stated");
    if (plan_.time.count() != time) fail("the time is not as stated");
    if (plan_.bound.count() > high_water_) fail("the arena is below the bound");
  }

  const Graph& graph_;
  const Reference& reference_;
  const Plan& plan_;
  std::vector<Cell> arena_;
  std::map<std::size_t, Contents> callers_;                      // by block: resident memory
  std::map<std::uint32_t, std::size_t> owner_of_caller_memory_;  // by buffer
  std::vector<std::optional<Tag>> random_state_at_first_run_;    // by op; none: it has not run
  std::vector<std::pair<std::size_t, std::size_t>>
      heirs_;  // at this step: a block, and the one that has its bytes next
  Tag random_state_ = kStart;
  Tag network_state_ = kStart;
  std::size_t in_use_ = 0;
  std::size_t most_in_use_ = 0;
  std::size_t high_water_ = 0;
  std::string wrong_;
};

}  // namespace

Reference::Reference(const Graph& graph)
    : contents_(graph.num_versions()), random_state_(graph.num_ops()), network_state_(graph.num_ops()) {
  for (std::size_t v = 0; v < graph.num_versions(); ++v) {
    const Version version = graph.version(VersionId(v));
    if (!version.writer) contents_[v] = initial_contents(graph, version.buffer);
  }
  Tag random_state = kStart;
  Tag network_state = kStart;
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const Op op = graph.op(id);
    random_state_[id.index()] = random_state;
    network_state_[id.index()] = network_state;
    Inputs inputs(graph, op);
    if (op.flags.random) {
      inputs.add_state(random_state);
      random_state = mix(random_state, id.value());
    }
    if (op.flags.collective) {
      inputs.add_state(network_state);
      network_state = mix(network_state, id.value());
    }
    for (const ValueId read : op.reads) {
      const VersionId version = graph.value(read).version;
      inputs.add(graph.version(version).buffer, of(version));
    }
    for (const VersionId write : op.writes) {
      const Version version = graph.version(write);
      if (version.index > 0) inputs.add(version.buffer, of(graph.buffer(version.buffer).versions[version.index - 1]));
    }
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      const BufferId buffer = graph.version(op.writes[i]).buffer;
      contents_[op.writes[i].index()] = computed(id, i, inputs.of(buffer), graph.buffer(buffer).size.count());
    }
  }
}

std::string run_on_machine(const Graph& graph, const Reference& reference, const Plan& plan) {
  return Machine(graph, reference, plan).run();
}

}  // namespace lowtide
