// max_flow.h: how much can flow through a network at once, and so what the cheapest cut through it costs.
//
//   source --3--> a --2--> sink        2 over a, and 1 over a and b: the most is 3
//                 a --5--> b --1--> sink      cut: the arcs of 2 and 1
//
// (Case "fork" of order_bounds_test.cc.) Dinic's algorithm, without recursion: paths are as long as graphs are deep.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "lowtide/limit.h"

namespace lowtide {

struct Network {
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
  using Node = std::uint32_t;
  struct Arc {
    Node from = 0;
    Node to = 0;
    std::int64_t capacity = 0;  // or kUnlimited; all others together stay below that
  };

  Node add_node() { return nodes++; }
  void add_arc(Node from, Node to, std::int64_t capacity) { arcs.push_back({from, to, capacity}); }

  Node nodes = 0;
  std::vector<Arc> arcs = {};
};

struct Flow {
  std::int64_t amount = 0;  // flows at least; kUnlimited if there is a path of unlimited arcs
  bool most = false;        // no more can flow: false if the work was not enough to see that
  // By node, where `most`: on the source's side of the cheapest cut; of several such cuts the one nearest to the sink.
  std::vector<bool> near_source = {};
};
Flow max_flow(const Network& network, Network::Node source, Network::Node sink, Work& work);

}  // namespace lowtide
