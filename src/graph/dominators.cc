#include "graph/dominators.h"

#include <span>
#include <utility>

namespace lowtide {

DominatorTree::DominatorTree(const Lists<Node>& predecessors)
    : parent_(predecessors.size()), jump_(predecessors.size()), depth_(predecessors.size()) {
  for (Node node = 1; node < size(); ++node) {
    const std::span<const Node> before = predecessors[node];
    Node above = before.empty() ? 0 : before.front();
    for (const Node one : before) above = lowest_above(above, one);
    add(node, above);
  }
  number();
}

void DominatorTree::add(Node node, Node parent) {
  parent_[node] = parent;
  depth_[node] = depth_[parent] + 1;
  const Node next = jump_[parent];
  const bool are_even = depth_[parent] - depth_[next] == depth_[next] - depth_[jump_[next]];
  jump_[node] = are_even ? jump_[next] : parent;
}

DominatorTree::Node DominatorTree::lowest_above(Node a, Node b) const {
  if (depth_[a] < depth_[b]) std::swap(a, b);
  while (depth_[a] > depth_[b]) a = depth_[jump_[a]] >= depth_[b] ? jump_[a] : parent_[a];
  while (a != b) {
    const bool far = jump_[a] != jump_[b];
    a = far ? jump_[a] : parent_[a];
    b = far ? jump_[b] : parent_[b];
  }
  return a;
}

// Parents come before their children: of a parent's numbers, the next ones go to the next child.
void DominatorTree::number() {
  std::vector<std::uint32_t> below(size(), 1);  // how many
  for (std::size_t node = size(); node-- > 1;) below[parent_[node]] += below[node];
  enter_.assign(size(), 0);
  leave_.assign(size(), 0);
  std::vector<std::uint32_t> next(size(), 1);
  for (Node node = 0; node < size(); ++node) {
    if (node > 0) {
      enter_[node] = next[parent_[node]];
      next[parent_[node]] += below[node];
      next[node] = enter_[node] + 1;
    }
    leave_[node] = enter_[node] + below[node];
  }
}

std::vector<std::int64_t> DominatorTree::sums_below(std::vector<std::int64_t> own) const {
  for (std::size_t node = size(); node-- > 1;) own[parent_[node]] += own[node];
  return own;
}

}  // namespace lowtide
