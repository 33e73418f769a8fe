#include "published/roam/roam_tree.h"

#include <algorithm>
#include <utility>

namespace lowtide {
namespace {

// By buffer: what a waist makes is handed on from one ring to the next.
std::vector<bool> find_handed_on(const Tasks& tasks, const Waists& waists) {
  std::vector<bool> handed_on(tasks.size.size());
  for (const Task waist : waists.tasks) {
    for (const Held buffer : tasks.touched[waist]) {
      if (tasks.users[buffer].front() == waist) handed_on[buffer] = true;
    }
  }
  return handed_on;
}

// By segment of the forward pass: the first one by which half of the bytes that it saved are used up.
std::vector<std::uint32_t> find_partners(const Tasks& tasks, const Turn& turns) {
  const std::uint32_t turn = *turns.segment;
  std::vector<std::vector<std::pair<std::uint32_t, std::int64_t>>> saved(turn + 1);  // last use, bytes
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    const PassSpan& span = turns.spans[buffer];
    if (turns.activation[buffer]) saved[span.made].emplace_back(span.used, tasks.size[buffer]);
  }
  std::vector<std::uint32_t> partners(turn + 1, turn + 1);
  for (std::uint32_t forward = 0; forward <= turn; ++forward) {
    std::int64_t left = 0;
    for (const auto& [used, size] : saved[forward]) left += size;
    const std::int64_t half = left / 2;
    std::ranges::sort(saved[forward]);
    for (const auto& [used, size] : saved[forward]) {
      if (left > half) partners[forward] = used;
      left -= size;
    }
  }
  return partners;
}

// By segment: its ring.
std::vector<std::uint32_t> find_rings(const Tasks& tasks, const Turn& turns, std::uint32_t segments) {
  const std::vector<std::uint32_t> partners = find_partners(tasks, turns);
  const std::uint32_t turn = *turns.segment;
  std::vector<std::uint32_t> ring(segments);
  std::uint32_t number = 0;
  std::uint32_t closed = turn + 1;  // segments of the backward pass before this one have their ring
  std::uint32_t needed = turn + 1;  // the last segment of the ring that is open
  for (std::uint32_t forward = turn + 1; forward-- > 0;) {
    const std::uint32_t used = partners[forward];
    if (used > needed) {
      if (forward < turn) ++number;
      closed = needed + 1;
      needed = used;
    }
    ring[forward] = number;
    for (std::uint32_t backward = closed; backward <= std::min(needed, segments - 1); ++backward) {
      ring[backward] = number;
    }
  }
  // What comes behind all of them is around all of them.
  for (std::uint32_t backward = needed + 1; backward < segments; ++backward) ring[backward] = number + 1;
  return ring;
}

bool is_independent(const Turn& turn, const std::vector<bool>& handed_on, std::span<const std::uint32_t> ring,
                    Rings rings) {
  const auto within = [&](std::uint32_t segment) { return rings.begin <= ring[segment] && ring[segment] < rings.end; };
  for (Held buffer = 0; buffer < turn.spans.size(); ++buffer) {
    if (!handed_on[buffer] && within(turn.spans[buffer].made) != within(turn.spans[buffer].used)) return false;
  }
  return true;
}

// As many rings together as have no more ops than the limit; one at least.
std::vector<Rings> split(Rings rings, std::span<const std::size_t> ops, std::size_t node_limit) {
  std::vector<Rings> parts = {{rings.begin, rings.begin}};
  std::size_t nodes = 0;
  for (std::size_t ring = rings.begin; ring < rings.end; ++ring) {
    if (nodes > 0 && nodes + ops[ring] > node_limit) {
      parts.push_back({ring, ring});
      nodes = 0;
    }
    nodes += ops[ring];
    parts.back().end = ring + 1;
  }
  return parts;
}

}  // namespace

std::vector<Rings> RoamTree::leaves() const {
  std::vector<Rings> all;
  for (const IndependentSubgraph& subgraph : subgraphs) {
    if (subgraph.parts.empty()) all.push_back(subgraph.rings);
    all.insert(all.end(), subgraph.parts.begin(), subgraph.parts.end());
  }
  return all;
}

RoamTree subgraph_tree(const Tasks& tasks, const RoamOrder& order, std::size_t node_limit) {
  const auto segments = static_cast<std::uint32_t>(order.waists.num_segments());
  const std::vector<bool> handed_on = find_handed_on(tasks, order.waists);
  RoamTree tree;
  tree.ring = order.turn.segment ? find_rings(tasks, order.turn, segments) : std::vector<std::uint32_t>(segments);
  std::vector<std::size_t> ops(std::ranges::max(tree.ring) + std::size_t{1});  // by ring
  for (const std::uint32_t segment : order.segment) ++ops[tree.ring[segment]];
  Rings open{0, 0};
  std::size_t nodes = 0;
  for (std::size_t ring = 0; ring < ops.size(); ++ring) {
    open.end = ring + 1;
    nodes += ops[ring];
    if (ring + 1 < ops.size() && !is_independent(order.turn, handed_on, tree.ring, open)) continue;
    tree.subgraphs.push_back({open, {}});
    if (nodes > node_limit) {
      std::vector<Rings> parts = split(open, ops, node_limit);
      if (parts.size() > 1) tree.subgraphs.back().parts = std::move(parts);
    }
    open.begin = ring + 1;
    nodes = 0;
  }
  return tree;
}

}  // namespace lowtide
