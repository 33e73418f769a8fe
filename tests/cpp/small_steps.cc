#include "small_steps.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>
#include <vector>

#include "base/words.h"
#include "graph/dependencies.h"
#include "rewrite/repeats.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using Mask = std::uint32_t;

Mask bit(std::size_t index) {
  return Mask{1} << index;
}

// A machine whose state is which ops have run, and which contents are in memory. Between two ops it drops what it
// likes.
class Machine {
 public:
  Machine(const Graph& graph, std::int64_t limit)
      : graph_(graph), limit_(limit), needs_(dependencies(graph)), repeats_(graph) {}

  std::optional<std::int64_t> least_cost() {
    using State = std::pair<Mask, Mask>;  // run, held
    using Entry = std::pair<std::int64_t, State>;
    std::map<State, std::int64_t> known;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    const auto reach = [&](std::int64_t cost, State state) {
      const auto [place, is_new] = known.try_emplace(state, cost);
      if (!is_new && place->second <= cost) return;
      place->second = cost;
      open.push({cost, state});
    };
    reach(0, {0, 0});
    while (!open.empty()) {
      const auto [cost, state] = open.top();
      open.pop();
      if (known[state] < cost) continue;
      const auto [run, held] = state;
      if (run + 1 == bit(graph_.num_ops()) && (kept() & ~held) == 0) return cost;
      for (Mask rest = held; rest != 0; rest &= rest - 1) reach(cost, {run, held & ~(rest & -rest)});
      for (OpId op(0); op.index() < graph_.num_ops(); op = op.next()) {
        const bool again = (run & bit(op.index())) != 0;
        if (again ? !repeats_.allowed(op) : !is_ready(op, run)) continue;
        const std::optional<Mask> after = run_op(op, held);
        if (!after) continue;
        const auto more = again ? static_cast<std::int64_t>(graph_.op(op).cost.count()) : 0;
        reach(cost + more, {run | bit(op.index()), *after});
      }
    }
    return std::nullopt;
  }

 private:
  bool is_ready(OpId op, Mask run) const {
    return std::ranges::all_of(needs_.predecessors[op.index()],
                               [&](OpId before) { return (run & bit(before.index())) != 0; });
  }

  std::int64_t size_of(VersionId version) const {
    return static_cast<std::int64_t>(graph_.buffer(graph_.version(version).buffer).size.count());
  }

  std::int64_t bytes(Mask held) const {
    std::int64_t sum = 0;
    for (VersionId id(0); id.index() < graph_.num_versions(); id = id.next()) {
      if ((held & bit(id.index())) != 0) sum += size_of(id);
    }
    return sum;
  }

  Mask kept() const {
    Mask mask = 0;
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      if (graph_.buffer(id).kept) mask |= bit(graph_.buffer(id).versions.back().index());
    }
    return mask;
  }

  // What is held afterwards, if the op can run with what is held. What it reads and reuses it gives up at once: who
  // wants to keep that does not reuse it.
  std::optional<Mask> run_op(OpId id, Mask held) const {
    const Op op = graph_.op(id);
    Mask reads = 0;
    for (const ValueId read : op.reads) reads |= bit(graph_.value(read).version.index());
    Mask made = 0;
    Mask changed = 0;
    std::int64_t while_running = bytes(held) + static_cast<std::int64_t>(op.workspace.count());
    for (const VersionId write : op.writes) {
      const Version version = graph_.version(write);
      made |= bit(write.index());
      if (version.index > 0) {
        changed |= bit(graph_.buffer(version.buffer).versions[version.index - 1].index());
      } else {
        while_running += size_of(write);
      }
    }
    if (((reads | changed) & ~held) != 0 || (made & held) != 0) return std::nullopt;
    if (while_running <= limit_) return (held & ~changed) | made;
    for (const Reuse& reuse : op.reuses) {
      const VersionId from = graph_.buffer(reuse.from).versions.back();
      if ((held & bit(from.index())) == 0) continue;
      if (while_running - size_of(from) <= limit_) return (held & ~changed & ~bit(from.index())) | made;
    }
    return std::nullopt;
  }

  const Graph& graph_;
  std::int64_t limit_;
  Dependencies needs_;
  Repeats repeats_;
};

}  // namespace

Graph small_step(std::mt19937_64& random) {
  const auto below = [&](std::size_t limit) { return random() % limit; };
  GraphBuilder builder;
  std::vector<BufferId> made;
  std::vector<std::size_t> size;
  const std::size_t early = 2 + below(3);
  const auto add_op = [&](std::vector<std::size_t> reads, bool in_place) {
    const std::string name = words("op", made.size());
    OpSpec spec{.name = name, .workspace = Bytes(below(4) == 0 ? 10 : 0), .cost = Nanos(1 + below(20))};
    for (const std::size_t read : reads) spec.reads.push_back(unwrap(builder.add_value(made[read], "u8", {})));
    if (in_place) {
      spec.writes = {made[reads.front()]};
      unwrap(builder.add_op(spec));
      return;
    }
    const bool alike = !reads.empty() && below(2) == 0;
    size.push_back(alike ? size[reads.front()] : 10 * (1 + below(9)));
    made.push_back(unwrap(builder.add_buffer({.size = Bytes(size.back()), .name = name})));
    spec.writes = {made.back()};
    const OpId op = unwrap(builder.add_op(spec));
    if (alike && below(2) == 0) unwrap(builder.add_reuse(op, made[reads.front()], made.back()));
  };
  add_op({}, false);
  for (std::size_t i = 1; i < early; ++i) {
    if (below(4) == 0) add_op({made.size() - 1}, true);
    std::vector<std::size_t> reads = {made.size() - 1};
    if (made.size() > 1 && below(3) == 0) reads.push_back(below(made.size() - 1));
    add_op(reads, false);
  }
  const std::size_t saved = made.size();
  for (std::size_t i = saved; i-- > 0;) {
    std::vector<std::size_t> reads = {i};
    if (made.size() - 1 != i) reads.push_back(made.size() - 1);
    if (below(8) != 0) add_op(reads, false);
  }
  if (below(3) == 0) unwrap(builder.keep(made.back()));
  return unwrap(std::move(builder).build());
}

Graph two_small_turns(std::mt19937_64& random) {
  const auto below = [&](std::size_t limit) { return random() % limit; };
  GraphBuilder builder;
  const auto add_op = [&](std::vector<BufferId> reads, BufferId write, bool backward) {
    OpSpec spec{.name = backward ? "back" : "fore", .writes = {write}, .cost = Nanos(1 + below(20))};
    for (const BufferId read : reads) spec.reads.push_back(unwrap(builder.add_value(read, "u8", {})));
    spec.flags.backward = backward;
    spec.flags.random = !backward && below(3) == 0;
    unwrap(builder.add_op(spec));
  };
  const auto new_buffer = [&] { return unwrap(builder.add_buffer({.size = Bytes(10 * (1 + below(9)))})); };
  const std::size_t longer = below(3);  // of the two turns, or none
  std::optional<BufferId> sum;
  std::vector<BufferId> crossing;  // the second forward pass may begin with something of the first
  for (std::size_t turn = 0; turn < 2; ++turn) {
    std::vector<BufferId> saved;
    for (std::size_t i = 0; i < (turn == longer ? 3 : 2); ++i) {
      const BufferId made = new_buffer();
      add_op(saved.empty() ? crossing : std::vector{saved.back()}, made, false);
      saved.push_back(made);
    }
    if (below(3) == 0) crossing = {saved[below(saved.size())]};
    std::optional<BufferId> gradient;
    for (std::size_t i = 2; i-- > 0;) {
      std::vector<BufferId> reads = {saved[i]};
      if (gradient) reads.push_back(*gradient);
      if (i == 0 && sum) {
        add_op({*sum, reads.front(), reads.back()}, *sum, true);
      } else {
        const BufferId made = new_buffer();
        add_op(reads, made, true);
        gradient = made;
      }
    }
    if (!sum) sum = gradient;
  }
  unwrap(builder.keep(*sum));
  return unwrap(std::move(builder).build());
}

std::optional<std::int64_t> least_cost_within(const Graph& graph, std::int64_t peak) {
  return Machine(graph, peak).least_cost();
}

}  // namespace lowtide
