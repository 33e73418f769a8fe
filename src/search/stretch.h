// stretch.h: a stretch of a sequence as a problem of order by itself.
//
//   before | entry   a   b   [c d]   e'  f' | after       [c d] a region, e' f' a unit that runs again: a task each
//
// What is there when the stretch begins is touched by an entry, a task before all others; what is needed behind it is
// kept. What is made again is a buffer of its own, made behind all users of the one before it: so every run reads what
// it read, in whatever order the tasks are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/lists.h"
#include "lowtide/order.h"
#include "order/tasks.h"
#include "search/sequence.h"

namespace lowtide {

// By position: which first runs must come before that one. What the graph says; and so that Reruns stays right, ops of
// a unit that may run again stay in order, and of the resident buffers that it reads, the one that changes first stays
// so.
Lists<Position> first_run_needs(const Graph& graph, const Reruns& reruns);

// Whether that run and the one before it are of one unit that runs again: these stay together.
bool continues_unit(const Reruns& reruns, const Runs& runs, std::uint32_t run);

class StretchProblem {
 public:
  // The runs from `begin` to `end`, which cut no region and no unit that runs again. `held` by run, as the sweep says.
  // The sequence must outlive it. Linear.
  StretchProblem(const Reruns& reruns, const Lists<Position>& needs, const Sequence& sequence,
                 std::span<const std::int64_t> held, std::uint32_t begin, std::uint32_t end);

  const Tasks& problem() const { return problem_; }
  std::int64_t peak() const { return peak_; }      // of the problem, in the order of the sequence
  std::int64_t always() const { return always_; }  // bytes that are there all the time, and not in the problem

  // The sequence with the stretch in that order of the problem.
  Sequence in_order(const Order& order) const;

 private:
  friend class StretchMaking;

  // Runs that stay together: a task.
  struct Block {
    std::uint32_t begin;
    std::uint32_t end;
  };

  const Sequence& sequence_;
  std::uint32_t begin_;
  std::uint32_t end_;
  std::vector<Block> blocks_;  // from task 1 on; task 0 is the entry
  Tasks problem_;
  std::int64_t peak_ = 0;
  std::int64_t always_ = 0;
};

}  // namespace lowtide
