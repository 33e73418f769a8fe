// reschedule.h: a better order for a sequence that a rule has changed, near where it holds the most.
//
// No rule changes more of the order than it must. What is better afterwards is of two kinds, and both begin at the run
// that holds the most, for no other order helps that leaves it as it is:
//
//   far    it holds the least that any order could if the right runs come before it: one cheapest cut (order/min_cut.h)
//          says which. What goes behind runs right before it is needed, however far that is
//   near   a window of runs around it, in the best order that a search with little work finds
//
//   runs   x   y = f(x)   p   g(x, y)        x is held at p anyway, and y need not be:
//          x   p   y = f(x)   g(x, y)        y goes behind p
//
// (Reschedule.GoesBehind in reschedule_test.cc.) This is what MAGIS has incremental scheduling for: it reorders around
// what changed, between narrow waists. That moves nothing far, and orders that are better often do: what a forward pass
// makes for the backward pass alone runs in that one. A region, and a unit that runs again, stay together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lowtide/lists.h"
#include "search/sequence.h"
#include "search/stretch.h"

namespace lowtide {

struct RescheduleOptions {
  std::size_t cuts = 4;          // in a row that need not lower the peak
  std::size_t windows = 3;       // one after the other, each around the peak that the one before it leaves
  std::uint32_t reach = 20;      // of a window: so many runs on each side
  std::uint64_t work = 100'000;  // to search one
};

// For one thread. Linear in the runs, but for the work.
class Reschedule {
 public:
  Reschedule(const Graph& graph, const Reruns& reruns, const RescheduleOptions& options = {});

  // Puts the sequence in the best order that is found: its peak is never higher than before, nor is its time.
  Figures lower(Sequence& sequence);

 private:
  struct Window {
    std::uint32_t begin;
    std::uint32_t end;
  };
  struct Found {
    Order order = {};       // of the problem; none if it is no better
    bool is_least = false;  // no order has a lower peak
  };
  enum class Outcome : std::uint8_t { same, better, least };
  using Solve = Found (Reschedule::*)(const Tasks& problem, std::int64_t peak, std::int64_t enough) const;

  Window window_around(const Sequence& sequence, std::uint32_t run) const;
  Outcome improve(Sequence& sequence, Figures& figures, Window window, Solve solve);
  Found far(const Tasks& problem, std::int64_t peak, std::int64_t enough) const;
  Found near(const Tasks& problem, std::int64_t peak, std::int64_t enough) const;

  const Reruns& reruns_;
  RescheduleOptions options_;
  Lists<Position> needs_;
  SequenceSweep sweep_;
  std::vector<std::int64_t> held_;  // by run
};

}  // namespace lowtide
