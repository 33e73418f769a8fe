#include "order/max_flow.h"

#include <algorithm>

namespace lowtide {
namespace {

using Node = Network::Node;

// What can still flow: each arc has a twin that takes back what flows through it.
class Residual {
 public:
  Residual(const Network& network, Node source, Node sink)
      : source_(source), sink_(sink), starts_(network.nodes + 1), distance_(network.nodes), next_(network.nodes) {
    for (const Network::Arc& arc : network.arcs) {
      ++starts_[arc.from + 1];
      ++starts_[arc.to + 1];
    }
    for (Node node = 0; node < network.nodes; ++node) starts_[node + 1] += starts_[node];
    arcs_.resize(2 * network.arcs.size());
    std::copy(starts_.begin(), starts_.end() - 1, next_.begin());
    for (const Network::Arc& arc : network.arcs) {
      const std::uint32_t there = next_[arc.from]++;
      const std::uint32_t back = next_[arc.to]++;
      arcs_[there] = {arc.to, back, arc.capacity};
      arcs_[back] = {arc.from, there, 0};
    }
  }

  Flow fill(Work& work) {
    Flow flow;
    while (true) {
      if (!work.spend(kStepsAnArc * arcs_.size())) return flow;
      measure_distances();
      if (distance_[source_] == kFar) break;
      if (!fill_shortest(flow, work)) return flow;
    }
    flow.most = true;
    for (const std::uint32_t distance : distance_) flow.near_source.push_back(distance == kFar);
    return flow;
  }

 private:
  static constexpr std::uint32_t kFar = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::uint64_t kStepsAnArc = 8;

  struct Arc {
    Node to = 0;
    std::uint32_t twin = 0;
    std::int64_t room = 0;
  };

  // In arcs to the sink, over those with room.
  void measure_distances() {
    std::fill(distance_.begin(), distance_.end(), kFar);
    distance_[sink_] = 0;
    queue_.assign(1, sink_);
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      const Node node = queue_[i];
      for (std::uint32_t a = starts_[node]; a < starts_[node + 1]; ++a) {
        const Node from = arcs_[a].to;
        if (distance_[from] != kFar || arcs_[arcs_[a].twin].room == 0) continue;
        distance_[from] = distance_[node] + 1;
        queue_.push_back(from);
      }
    }
  }

  // Fills every shortest path. Answers false if it ended before.
  bool fill_shortest(Flow& flow, Work& work) {
    std::copy(starts_.begin(), starts_.end() - 1, next_.begin());
    path_.clear();
    std::uint64_t steps = 0;
    for (Node node = source_;;) {
      if (node == sink_) {
        steps += 2 * path_.size();
        if (!work.spend(kStepsAnArc * steps)) return false;
        steps = 0;
        std::int64_t least = Network::kUnlimited;
        for (const std::uint32_t a : path_) least = std::min(least, arcs_[a].room);
        if (least == Network::kUnlimited) {
          flow.amount = least;
          return false;
        }
        flow.amount += least;
        node = push(least);
        continue;
      }
      std::uint32_t& a = next_[node];
      const std::uint32_t begin = a;
      while (a < starts_[node + 1] && (arcs_[a].room == 0 || distance_[arcs_[a].to] + 1 != distance_[node])) ++a;
      steps += a - begin + 1;
      if (a < starts_[node + 1]) {
        path_.push_back(a);
        node = arcs_[a].to;
      } else if (path_.empty()) {
        return work.spend(kStepsAnArc * steps);
      } else {
        node = arcs_[arcs_[path_.back()].twin].to;
        path_.pop_back();
        ++next_[node];
      }
    }
  }

  // Along the path; cuts it at the first arc that is full then, and gives the node before that.
  Node push(std::int64_t amount) {
    std::size_t kept = path_.size();
    for (std::size_t i = path_.size(); i-- > 0;) {
      Arc& arc = arcs_[path_[i]];
      Arc& twin = arcs_[arc.twin];
      if (twin.room != Network::kUnlimited) twin.room += amount;
      if (arc.room == Network::kUnlimited) continue;
      arc.room -= amount;
      if (arc.room == 0) kept = i;
    }
    const Node node = arcs_[arcs_[path_[kept]].twin].to;
    path_.resize(kept);
    return node;
  }

  Node source_;
  Node sink_;
  std::vector<std::uint32_t> starts_;  // by node: its first arc
  std::vector<Arc> arcs_;              // of one node after the other
  std::vector<std::uint32_t> distance_;
  std::vector<std::uint32_t> next_;  // by node: the first arc that may still lead to the sink
  std::vector<Node> queue_;
  std::vector<std::uint32_t> path_;  // arcs from the source on
};

}  // namespace

Flow max_flow(const Network& network, Node source, Node sink, Work& work) {
  return Residual(network, source, sink).fill(work);
}

}  // namespace lowtide
