// roam_tree.h: a training step as rings around its turn, and which of them are laid out together. Algorithm 1 of ROAM.
//
// A segment of the forward pass goes with those of the backward pass by which half of the bytes that it saved are used
// up, and that do not go with a later one: they are a ring. The waists at its ends are the pairs of the paper, which
// walks the waists of both passes in step; but captured passes have different numbers of them.
//
//   segment   0      1      2   |   3      4      5          what 2 saves is last used in 3, what 1 saves in 4, what
//             |      |      +---|---+      |      |          0 saves in 5: three rings
//             |      +----------|----------+      |
//             +-----------------|-----------------+
//                              turn                          (case "ThreeRings" of roam_test.cc)
//
// From the turn on, rings join until all that is made among them is freed among them, but for what a waist hands on:
// they are an independent subgraph. One of more than `node_limit` ops is divided again, into dependent subgraphs.
#pragma once

#include <cstdint>
#include <vector>

#include "published/roam/roam.h"

namespace lowtide {

struct Rings {
  std::size_t begin;
  std::size_t end;

  bool operator==(const Rings&) const = default;
};

struct IndependentSubgraph {
  Rings rings;
  std::vector<Rings> parts;  // dependent subgraphs; none if it is small enough
};

struct RoamTree {
  std::vector<std::uint32_t> ring;  // by segment; 0 is the innermost
  std::vector<IndependentSubgraph> subgraphs;

  std::vector<Rings> leaves() const;  // what is laid out together, from the turn outwards
};

RoamTree subgraph_tree(const Tasks& tasks, const RoamOrder& order, std::size_t node_limit);

}  // namespace lowtide
