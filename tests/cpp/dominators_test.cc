#include "graph/dominators.h"

#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lowtide {
namespace {

using Node = DominatorTree::Node;
using Edges = std::vector<std::pair<std::size_t, Node>>;  // a node, and one before it

TEST(Dominators, Diamond) {
  const DominatorTree tree(Lists<Node>::group(5, Edges{{1, 0}, {2, 1}, {3, 1}, {4, 2}, {4, 3}}));
  std::vector<Node> parents;
  for (Node node = 0; node < 5; ++node) parents.push_back(tree.parent(node));
  EXPECT_THAT(parents, testing::ElementsAre(0, 0, 1, 1, 1));
  EXPECT_EQ(tree.lowest_above(2, 4), 1u);
  EXPECT_THAT(tree.sums_below({1, 2, 4, 8, 16}), testing::ElementsAre(31, 30, 4, 8, 16));
}

// Without `gone`, can `node` be reached from 0? Nodes without predecessors are reached from there.
std::vector<bool> reached_without(const Lists<Node>& predecessors, Node gone) {
  std::vector<bool> reached(predecessors.size());
  reached[0] = gone != 0;
  for (Node node = 1; node < predecessors.size(); ++node) {
    bool any = predecessors[node].empty() && reached[0];
    for (const Node before : predecessors[node]) any = any || reached[before];
    reached[node] = any && node != gone;
  }
  return reached;
}

TEST(Dominators, AreOnAllWays) {
  std::mt19937 random(1);
  for (int tries = 0; tries < 300; ++tries) {
    const auto nodes = static_cast<Node>(2 + random() % 30);
    Edges edges;
    for (Node node = 1; node < nodes; ++node) {
      for (std::size_t i = random() % 4; i > 0; --i) edges.emplace_back(node, static_cast<Node>(random() % node));
    }
    const auto predecessors = Lists<Node>::group(nodes, edges);
    const DominatorTree tree(predecessors);
    for (Node top = 0; top < nodes; ++top) {
      const std::vector<bool> others = reached_without(predecessors, top);
      for (Node node = 0; node < nodes; ++node) {
        ASSERT_EQ(tree.is_below(node, top), node == top || !others[node]) << node << " below " << top;
      }
    }
    for (Node a = 0; a < nodes; ++a) {
      for (Node b = 0; b < nodes; ++b) {
        Node lowest = a;
        while (!tree.is_below(b, lowest)) lowest = tree.parent(lowest);
        ASSERT_EQ(tree.lowest_above(a, b), lowest);
      }
    }
  }
}

}  // namespace
}  // namespace lowtide
