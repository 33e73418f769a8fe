// dominators.h: which nodes lie on all ways from an entry.
//
//      0          node    0  1  2  3  4        (case "Diamond" of dominators_test.cc)
//      1          parent  0  0  1  1  1
//    2   3
//      4          4 is reached through 2 or through 3, but only through 1
#pragma once

#include <cstdint>
#include <vector>

#include "lowtide/lists.h"

namespace lowtide {

class DominatorTree {
 public:
  using Node = std::uint32_t;

  // Node 0 is the entry, and every edge leads to a higher node. A node without predecessors is reached from the entry.
  // n log n in nodes and edges.
  explicit DominatorTree(const Lists<Node>& predecessors);

  std::size_t size() const { return parent_.size(); }

  // The last other node on all ways to it; the entry has itself.
  Node parent(Node node) const { return parent_[node]; }

  // Whether all ways to `node` go through `top`: also where they are the same.
  bool is_below(Node node, Node top) const { return enter_[top] <= enter_[node] && enter_[node] < leave_[top]; }

  // A number for each node; those below one follow it without a gap.
  std::uint32_t enter(Node node) const { return enter_[node]; }

  // The lowest node that both are below.
  Node lowest_above(Node a, Node b) const;

  // By node: the sum of `own` over the nodes below it, itself among them.
  std::vector<std::int64_t> sums_below(std::vector<std::int64_t> own) const;

 private:
  void add(Node node, Node parent);
  void number();

  std::vector<Node> parent_;
  std::vector<Node> jump_;  // a node further up, so that a way up of length n takes log n steps
  std::vector<std::uint32_t> depth_;
  std::vector<std::uint32_t> enter_;
  std::vector<std::uint32_t> leave_;  // behind the last node below it
};

}  // namespace lowtide
