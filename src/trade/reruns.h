// reruns.h: a step whose early ops may run again late, as the search under a budget sees it.
//
// The order of the step is given. Ops before the *turn* are early, the others late: in a training step the turn is
// where the forward pass ends. What an early op makes can be dropped after its last early use, and made again by
// running the op once more right before the late op that needs it:
//
//   order      0 a   1 b(a)   2 c(b)  |  3 d(c)   4 e(b)   5 f(a)        a is held from 0 to 5, b from 1 to 4
//   dropped b  0 a   1 b(a)   2 c(b)  |  3 d(c)   1 again  4 e(b)   5 f(a)    b: from 1 to 2, and again for 4
//
// (Reruns.Chain in recompute_test.cc.) What runs again is a *unit*: all ops that write one buffer, or buffers that are
// written together, so that in-place chains are made again as a whole. What is read is always what was made last.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/lists.h"

namespace lowtide {

using Position = std::uint32_t;  // of an op in the given order
using Item = std::uint32_t;      // the index of a planned buffer with bytes
using Unit = std::uint32_t;

// An op may make `to` in the bytes of `from`: see Reuse in graph.h.
struct ItemReuse {
  Item from;
  Item to;
};

struct Reruns {
  std::vector<OpId> order;  // by position
  Position turn = 0;        // the first late one

  // By position.
  std::vector<std::int64_t> cost;
  std::vector<std::int64_t> workspace;
  std::vector<bool> backward;  // whether it belongs to a backward pass, as the graph says
  Lists<Item> takes;           // what it touches and does not make
  Lists<Item> changes;         // of those, what it writes in place
  Lists<Item> makes;
  Lists<ItemReuse> reuses;
  std::vector<Unit> unit;

  // By item.
  std::vector<std::int64_t> size;
  std::vector<bool> kept;
  std::vector<Unit> made_by;
  std::vector<bool> used_late;
  std::vector<BufferId> buffer;

  // By unit.
  Lists<Position> members;
  Lists<Item> needs;  // made by other units
  Lists<Item> gives;
  std::vector<std::int64_t> unit_cost;
  std::vector<bool> may_run_again;  // that is right
  std::vector<bool> repeatable;     // and its ops are early
  std::vector<Position> until;      // the last position before which it can run again: then something it reads changes

  std::vector<Item> candidates;  // items that are worth dropping, in the order in which they are made
  std::int64_t peak = 0;         // of the order as it is
  std::int64_t total_cost = 0;
  bool costs_are_times = true;  // false where the ops have none

  std::size_t num_ops() const { return order.size(); }
  std::size_t num_items() const { return size.size(); }
  std::size_t num_units() const { return unit_cost.size(); }
  bool is_early(Item item) const { return members[made_by[item]].front() < turn; }
};

// `order` is a valid order of the graph. Costs are the ops' own; where all of those are zero, the bytes that each op
// touches.
Reruns to_reruns(const Graph& graph, std::span<const OpId> order);

// One run of an op: the first, or another.
struct Run {
  Position op;
  bool again;

  bool operator==(const Run&) const = default;
};
using Runs = std::vector<Run>;

Runs each_once(const Reruns& reruns);

// Once all else is known: what repeatable units make, where that is worth dropping.
std::vector<Item> candidates_of(const Reruns& reruns);

struct Outcome {
  std::int64_t peak = 0;    // the most bytes held at once
  std::int64_t cost = 0;    // of what runs again
  std::int64_t excess = 0;  // by how much each run holds more than the target, added up
};

// What is needed behind a run, gone through from the last run to the first.
class LiveItems {
 public:
  explicit LiveItems(const Reruns& reruns) : reruns_(&reruns), live_(reruns.num_items()) {}

  // Behind the last run: what is kept.
  void begin_behind_all();

  // Behind some other run: `is_live` says for each item whether it is needed there.
  template <typename IsLive>
  void begin(const IsLive& is_live) {
    const std::span<const std::int64_t> size(reruns_->size);
    for (Item item = 0; item < live_.size(); ++item) live_[item] = is_live(item) ? 1 : 0;
    bytes_ = 0;
    for (Item item = 0; item < live_.size(); ++item) bytes_ += live_[item] * size[item];
  }

  bool operator[](Item item) const { return live_[item] != 0; }

  // Whether another run of the op, right before where this is, makes something that is needed.
  bool wants(Position op) const;

  // Goes to before a run of the op: the bytes held while it runs.
  std::int64_t pass(Position op);

 private:
  const Reruns* reruns_;
  std::vector<std::uint8_t> live_;
  std::int64_t bytes_ = 0;
};

inline bool LiveItems::wants(Position op) const {
  const auto is_live = [&](Item item) { return live_[item] != 0; };
  return std::ranges::any_of(reruns_->makes[op], is_live) || std::ranges::any_of(reruns_->changes[op], is_live);
}

inline std::int64_t LiveItems::pass(Position op) {
  const Reruns& r = *reruns_;
  std::int64_t held = bytes_ + r.workspace[op];
  std::int64_t placed = -1;
  for (const ItemReuse& reuse : r.reuses[op]) {
    if (live_[reuse.from] != 0 || placed == reuse.to) continue;
    placed = reuse.to;
    held -= r.size[reuse.to];
  }
  for (const Item item : r.makes[op]) {
    if (live_[item] != 0) {
      bytes_ -= r.size[item];
      live_[item] = 0;
    } else {
      held += r.size[item];
    }
  }
  for (const Item item : r.takes[op]) {
    if (live_[item] != 0) continue;
    live_[item] = 1;
    bytes_ += r.size[item];
    held += r.size[item];
  }
  return held;
}

// Follows runs from the last to the first, and so knows who is still needed: what runs again for nothing is left out.
class Evaluation {
 public:
  explicit Evaluation(const Reruns& reruns) : reruns_(&reruns), live_(reruns) {}

  // `runs` must have every op once as its first run, in the given order. Linear.
  Outcome of(const Runs& runs, std::int64_t target = std::numeric_limits<std::int64_t>::max());

  // The same, and by run: the bytes held while it runs; -1 if it is left out.
  Outcome of(const Runs& runs, std::vector<std::int64_t>& held);

 private:
  template <typename Visit>
  Outcome follow(const Runs& runs, std::int64_t target, const Visit& visit);

  const Reruns* reruns_;
  LiveItems live_;
};

// Without those that run again for nothing.
Runs needed_runs(const Reruns& reruns, const Runs& runs);

}  // namespace lowtide
