// peak_tree.h: a number for each moment, added to over ranges of moments, with the highest always known.
//
//   add(1, 2, 5)  add(2, 3, 4)      moment  0  1  2  3      highest: 9, at 2
//                                           0  5  9  4      (case "Ranges" of moves_test.cc)
//
// A segment tree whose nodes keep what was added to all of their range. An add takes a few steps a level.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace lowtide {

class PeakTree {
 public:
  explicit PeakTree(std::size_t moments) : leaves_(std::bit_ceil(std::max<std::size_t>(moments, 1))) {
    nodes_.resize(2 * leaves_);
  }

  // These amounts from the beginning.
  explicit PeakTree(std::span<const std::int64_t> amounts) : PeakTree(amounts.size()) {
    for (std::size_t i = 0; i < amounts.size(); ++i) nodes_[leaves_ + i].highest = amounts[i];
    for (std::size_t node = leaves_; node-- > 1;) {
      nodes_[node].highest = std::max(nodes_[2 * node].highest, nodes_[2 * node + 1].highest);
    }
  }

  // To the moments first, ..., last.
  void add(std::size_t first, std::size_t last, std::int64_t amount) {
    std::size_t left = first + leaves_;
    std::size_t right = last + leaves_ + 1;
    const std::size_t left_end = left;
    const std::size_t right_end = right - 1;
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2 == 1) add_to(left++, amount);
      if (right % 2 == 1) add_to(--right, amount);
    }
    update_above(left_end);
    if (right_end != left_end) update_above(right_end);
  }

  std::int64_t highest() const { return nodes_[1].highest; }

  // Of the moments first, ..., last.
  std::int64_t highest_in(std::size_t first, std::size_t last) const { return highest_in(first, last, 1, 0, leaves_); }

  // The first moment at which it is reached.
  std::size_t highest_at() const {
    std::size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      if (nodes_[node].highest < nodes_[node + 1].highest) ++node;
    }
    return node - leaves_;
  }

 private:
  struct Node {
    std::int64_t highest = 0;  // in its range, with what was added to it as a whole
    std::int64_t added = 0;
  };

  // `node` is of the moments begin, ..., end - 1, some of which are asked for.
  std::int64_t highest_in(std::size_t first, std::size_t last, std::size_t node, std::size_t begin,
                          std::size_t end) const {
    if (first <= begin && end <= last + 1) return nodes_[node].highest;
    const std::size_t middle = begin + (end - begin) / 2;
    std::int64_t highest = std::numeric_limits<std::int64_t>::min();
    if (first < middle) highest = highest_in(first, last, 2 * node, begin, middle);
    if (last >= middle) highest = std::max(highest, highest_in(first, last, 2 * node + 1, middle, end));
    return highest + nodes_[node].added;
  }

  void add_to(std::size_t node, std::int64_t amount) {
    nodes_[node].highest += amount;
    nodes_[node].added += amount;
  }

  void update_above(std::size_t node) {
    for (node /= 2; node > 0; node /= 2) {
      const std::int64_t highest =
          std::max(nodes_[2 * node].highest, nodes_[2 * node + 1].highest) + nodes_[node].added;
      nodes_[node].highest = highest;
    }
  }

  std::size_t leaves_;
  std::vector<Node> nodes_;
};

}  // namespace lowtide
