// reachability.h: which ops must run before which others, directly or through others.
//
// A table of all pairs would take n * n bits, 125 GB for a million ops. It is made one block of 512 columns at a time
// instead, by one sweep over the dependencies, and each block is handed to a visitor before the next takes its place:
//
//           ops of the block: first .. first + 512       Side::ancestors of 0 -> 1 -> 3, 0 -> 2
//              +----------------+
//   op 0       |                |                            column  0 1 2 3
//    ...       |                |                          op 0      . . . .
//   op v       | 0 1 0 0 1 ...  |  bit j: op first + j     op 1      x . . .
//    ...       |                |  is an ancestor of v     op 2      x . . .
//   op n - 1   +----------------+                          op 3      x x . .
//
// (Case "fork" of reachability_test.cc.) A row is one cache line: a million ops take 64 MB a block, and one sweep, some
// hundredths of a second. Over all blocks the rows of v are v's whole set: their bits add up to how many ancestors or
// descendants it has.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "graph/dependencies.h"
#include "lowtide/units.h"

namespace lowtide {

// Which relatives of an op its row tells of. No op is its own.
enum class Side : std::uint8_t {
  ancestors,    // must run before it
  descendants,  // must run after it
};

class ReachabilityBlock {
 public:
  static constexpr std::size_t kColumns = 512;
  struct alignas(kColumns / 8) Row {
    std::array<std::uint64_t, kColumns / 64> words = {};
  };

  OpId first() const { return first_; }                 // the op of column 0
  std::size_t num_columns() const { return columns_; }  // kColumns, or fewer in the last block
  std::span<const Row> rows() const { return rows_; }   // by OpId; bits beyond num_columns() are 0

  // Is op first() + column an ancestor (descendant) of `op`?
  bool test(OpId op, std::size_t column) const {
    return (rows_[op.index()].words[column / 64] >> (column % 64) & 1) != 0;
  }

  // How many of the block's ops are ancestors (descendants) of `op`.
  std::size_t count(OpId op) const {
    std::size_t bits = 0;
    for (const std::uint64_t word : rows_[op.index()].words) bits += static_cast<std::size_t>(std::popcount(word));
    return bits;
  }

 private:
  friend class BlockSweep;
  OpId first_;
  std::size_t columns_ = 0;
  std::vector<Row> rows_;
};

// Visits all blocks in ascending order, on the calling thread. Up to `threads` blocks are swept at once, each with
// memory of its own; what is visited does not depend on how many.
void for_each_block(const Dependencies& dependencies, Side side, std::size_t threads,
                    const std::function<void(const ReachabilityBlock&)>& visit);

// By OpId: how many ancestors or descendants each op has. n * edges / 512 steps.
std::vector<std::uint32_t> count_relatives(const Dependencies& dependencies, Side side, std::size_t threads = 1);

// Answers single questions. Most are settled by a few comparisons, with marks that one pass in each direction makes:
//
//   no    a does not come before b in program order; its longest path from a start is not the shorter one, or its
//         longest path to an end not the longer one; or b lies outside the span of a depth-first numbering that holds
//         all descendants of a
//   yes   b lies below a in the tree of that depth-first walk
//
// For the rest the ancestors of b are searched, with the same tests to prune. Safe to use from several threads.
class Reachability {
 public:
  // `dependencies` must outlive it. Linear; 20 bytes an op.
  explicit Reachability(const Dependencies& dependencies);

  // Must `a` run before `b`?
  bool precedes(OpId a, OpId b) const;

 private:
  enum class Answer : std::uint8_t { no, yes, open };

  struct Marks {
    std::uint32_t depth = 0;   // longest path from an op without predecessors
    std::uint32_t height = 0;  // longest path to an op without successors
    std::uint32_t enter = 0;   // of the walk: finishes before it was first met
    std::uint32_t finish = 0;  // of the walk: its place among the finishes
    std::uint32_t lowest = 0;  // the least finish of it and its descendants
  };

  void walk();
  Answer compare(OpId a, OpId b) const;

  const Dependencies* dependencies_;
  std::vector<Marks> marks_;  // by OpId
};

}  // namespace lowtide
