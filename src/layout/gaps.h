// gaps.h: the free bytes of an arena without end, as gaps in the order of their offsets.
//
//   taken   #####    ####  ###                     take(2) gives the lowest gap that has 2 bytes: offset 5
//   offset  0    5   8   12 14 17 ...              give_back(8, 12) makes one gap of [5,8), [8,12) and [12,14)
//   gaps         [5,8)   [12,14) [17, ...
//
// (Case "gaps" of layout_test.cc.)
//
// A treap: a search tree by offset that random priorities keep shallow, in which each node also knows the longest gap
// below it. The priorities are a fixed sequence, so equal calls give equal answers. O(log gaps) a call, on average.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "layout/pieces.h"

namespace lowtide {

class Gaps {
 public:
  Gaps();

  // The offset of `size` > 0 units that are now taken.
  Units take(Units size);

  // Frees taken units.
  void give_back(Units begin, Units end);

 private:
  using Node = std::uint32_t;  // an index into nodes_; 0 is no node

  struct Gap {
    Units begin = 0;
    Units end = 0;
    Units longest = 0;  // of it and all below it
    Node left = 0;
    Node right = 0;
    std::uint64_t priority = 0;  // no node has a higher one than the node above it
  };

  Units take_below(Node& node, Units size);
  Node make(Units begin, Units end);
  void update(Node node);
  Node join(Node left, Node right);
  std::pair<Node, Node> split(Node node, Units offset);

  std::vector<Gap> nodes_;
  std::vector<Node> unused_;
  Node root_ = 0;
  std::uint64_t random_ = 0;
};

}  // namespace lowtide
