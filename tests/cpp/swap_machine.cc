#include "swap_machine.h"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/dependencies.h"
#include "rewrite/repeats.h"

namespace lowtide {
namespace {

using Mask = std::uint32_t;
constexpr std::size_t kFlights = 2;

Mask bit(std::size_t index) {
  return Mask{1} << index;
}

struct Flight {
  std::uint32_t version;
  bool load;
  std::int64_t left;  // until it is over
  auto operator<=>(const Flight&) const = default;
};

// Which ops have run, which contents memory and tier have, and what is under way.
struct State {
  Mask run = 0;
  Mask held = 0;
  Mask stored = 0;
  std::vector<Flight> flights = {};
  auto operator<=>(const State&) const = default;
};

class Machine {
 public:
  Machine(const Graph& graph, const Link& link, std::int64_t limit)
      : graph_(graph), link_(link), limit_(limit), needs_(dependencies(graph)), repeats_(graph) {}

  std::optional<std::int64_t> least_time() {
    reach(0, {});
    while (!open_.empty()) {
      const auto [time, state] = open_.top();
      open_.pop();
      if (known_[state] < time) continue;
      if (state.run + 1 == bit(graph_.num_ops()) && (kept() & ~state.held) == 0) return time;
      drop(time, state);
      transfer(time, state);
      if (!state.flights.empty()) {
        const auto first = std::ranges::min_element(state.flights, {}, &Flight::left);
        reach(time + first->left, passed(state, first->left));
      }
      for (OpId op(0); op.index() < graph_.num_ops(); op = op.next()) run(time, state, op);
    }
    return std::nullopt;
  }

 private:
  using Entry = std::pair<std::int64_t, State>;

  void reach(std::int64_t time, const State& state) {
    const auto [place, is_new] = known_.try_emplace(state, time);
    if (!is_new && place->second <= time) return;
    place->second = time;
    open_.push({time, state});
  }

  static State passed(State state, std::int64_t time) {
    for (Flight& flight : state.flights) {
      flight.left -= time;
      if (flight.left <= 0) (flight.load ? state.held : state.stored) |= bit(flight.version);
    }
    std::erase_if(state.flights, [](const Flight& flight) { return flight.left <= 0; });
    return state;
  }

  static Mask flying(const State& state, bool loads) {
    Mask mask = 0;
    for (const Flight& flight : state.flights) mask |= flight.load == loads ? bit(flight.version) : 0;
    return mask;
  }

  void drop(std::int64_t time, const State& state) {
    for (Mask rest = state.held & ~flying(state, false); rest != 0; rest &= rest - 1) {
      State next = state;
      next.held &= ~(rest & -rest);
      reach(time, next);
    }
  }

  void transfer(std::int64_t time, const State& state) {
    if (state.flights.size() == kFlights) return;
    const Mask busy = flying(state, true) | flying(state, false);
    for (VersionId id(0); id.index() < graph_.num_versions(); id = id.next()) {
      if ((busy & bit(id.index())) != 0) continue;
      const bool held = (state.held & bit(id.index())) != 0;
      const bool stored = (state.stored & bit(id.index())) != 0;
      if (held == stored) continue;
      const Bytes size(static_cast<std::uint64_t>(size_of(id)));
      if (stored && bytes(state) + size_of(id) > limit_) continue;
      std::int64_t begin = 0;
      for (const Flight& flight : state.flights) {
        if (!link_.duplex || flight.load == stored) begin = std::max(begin, flight.left);
      }
      const auto takes = static_cast<std::int64_t>((stored ? load_time(link_, size) : store_time(link_, size)).count());
      State next = state;
      next.flights.push_back({static_cast<std::uint32_t>(id.index()), stored, begin + takes});
      std::ranges::sort(next.flights);
      reach(time, next);
    }
  }

  void run(std::int64_t time, const State& state, OpId id) {
    const bool again = (state.run & bit(id.index())) != 0;
    if (again ? !repeats_.allowed(id) : !is_ready(id, state.run)) return;
    const std::optional<Mask> after = held_after(id, state);
    if (!after) return;
    State next = state;
    next.run |= bit(id.index());
    next.held = *after;
    const auto cost = static_cast<std::int64_t>(graph_.op(id).cost.count());
    reach(time + cost, passed(std::move(next), cost));
  }

  bool is_ready(OpId op, Mask run) const {
    return std::ranges::all_of(needs_.predecessors[op.index()],
                               [&](OpId before) { return (run & bit(before.index())) != 0; });
  }

  std::int64_t size_of(VersionId version) const {
    return static_cast<std::int64_t>(graph_.buffer(graph_.version(version).buffer).size.count());
  }

  std::int64_t bytes(const State& state) const {
    std::int64_t sum = 0;
    for (VersionId id(0); id.index() < graph_.num_versions(); id = id.next()) {
      if (((state.held | flying(state, true)) & bit(id.index())) != 0) sum += size_of(id);
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

  // What is held afterwards, if the op can run with what is held.
  std::optional<Mask> held_after(OpId id, const State& state) const {
    const Op op = graph_.op(id);
    Mask reads = 0;
    for (const ValueId read : op.reads) reads |= bit(graph_.value(read).version.index());
    Mask made = 0;
    Mask changed = 0;
    std::int64_t while_running = bytes(state) + static_cast<std::int64_t>(op.workspace.count());
    for (const VersionId write : op.writes) {
      const Version version = graph_.version(write);
      made |= bit(write.index());
      if (version.index > 0) {
        changed |= bit(graph_.buffer(version.buffer).versions[version.index - 1].index());
      } else {
        while_running += size_of(write);
      }
    }
    const Mask storing = flying(state, false);
    if (((reads | changed) & ~state.held) != 0 || (made & (state.held | flying(state, true))) != 0) return std::nullopt;
    if ((changed & storing) != 0) return std::nullopt;
    if (while_running <= limit_) return (state.held & ~changed) | made;
    for (const Reuse& reuse : op.reuses) {
      const VersionId from = graph_.buffer(reuse.from).versions.back();
      if ((state.held & ~storing & bit(from.index())) == 0) continue;
      if (while_running - size_of(from) <= limit_) return (state.held & ~changed & ~bit(from.index())) | made;
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const Link& link_;
  std::int64_t limit_;
  Dependencies needs_;
  Repeats repeats_;
  std::map<State, std::int64_t> known_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
};

}  // namespace

std::optional<std::int64_t> least_time_within(const Graph& graph, const Link& link, std::int64_t peak) {
  return Machine(graph, link, peak).least_time();
}

}  // namespace lowtide
