#include "layout/gaps.h"

#include <algorithm>
#include <limits>

namespace lowtide {

// All pieces together are smaller than 2^62 units, so that the last gap never ends.
Gaps::Gaps() : nodes_(1) {
  root_ = make(0, std::numeric_limits<Units>::max());
}

Units Gaps::take(Units size) {
  return take_below(root_, size);
}

void Gaps::give_back(Units begin, Units end) {
  auto [below, above] = split(root_, begin);
  Node last = below;
  while (nodes_[last].right != 0) last = nodes_[last].right;
  if (last != 0 && nodes_[last].end == begin) {
    begin = nodes_[last].begin;
    below = split(below, begin).first;
    unused_.push_back(last);
  }
  // No gap begins within the units given back, so that at most one begins up to where they end.
  const auto [touching, rest] = split(above, end + 1);
  if (touching != 0) {
    end = nodes_[touching].end;
    unused_.push_back(touching);
  }
  root_ = join(join(below, make(begin, end)), rest);
}

// `node` has a long enough gap in or below it.
Units Gaps::take_below(Node& node, Units size) {
  Gap& gap = nodes_[node];
  Units offset;
  if (nodes_[gap.left].longest >= size) {
    offset = take_below(gap.left, size);
  } else if (gap.end - gap.begin >= size) {
    offset = gap.begin;
    gap.begin += size;
    if (gap.begin == gap.end) {
      unused_.push_back(node);
      node = join(gap.left, gap.right);
      return offset;
    }
  } else {
    offset = take_below(gap.right, size);
  }
  update(node);
  return offset;
}

Gaps::Node Gaps::make(Units begin, Units end) {
  if (unused_.empty()) {
    unused_.push_back(static_cast<Node>(nodes_.size()));
    nodes_.emplace_back();
  }
  const Node node = unused_.back();
  unused_.pop_back();
  // Knuth's linear congruential generator: all that is asked of it is that no input is likely to follow it.
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  nodes_[node] = {begin, end, end - begin, 0, 0, random_ >> 16};
  return node;
}

void Gaps::update(Node node) {
  Gap& gap = nodes_[node];
  gap.longest = std::max({gap.end - gap.begin, nodes_[gap.left].longest, nodes_[gap.right].longest});
}

// All gaps of `left` lie below those of `right`.
Gaps::Node Gaps::join(Node left, Node right) {
  if (left == 0 || right == 0) return left + right;
  if (nodes_[left].priority >= nodes_[right].priority) {
    nodes_[left].right = join(nodes_[left].right, right);
    update(left);
    return left;
  }
  nodes_[right].left = join(left, nodes_[right].left);
  update(right);
  return right;
}

// The gaps below `offset`, and those above.
std::pair<Gaps::Node, Gaps::Node> Gaps::split(Node node, Units offset) {
  if (node == 0) return {0, 0};
  if (nodes_[node].begin < offset) {
    const auto [below, above] = split(nodes_[node].right, offset);
    nodes_[node].right = below;
    update(node);
    return {node, above};
  }
  const auto [below, above] = split(nodes_[node].left, offset);
  nodes_[node].left = above;
  update(node);
  return {below, node};
}

}  // namespace lowtide
