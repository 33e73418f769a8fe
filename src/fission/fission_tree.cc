#include "fission/fission_tree.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace lowtide {
namespace {

using Node = DominatorTree::Node;

constexpr std::size_t kEntriesTried = 16;
constexpr std::int64_t kWorthwhile = 20;  // a dimension has at least this part of the highest score of all

// From which node all others of a list can be reached along its edges: how many can.
std::vector<bool> reached_from(Node entry, const Lists<Node>& successors) {
  std::vector<bool> reached(successors.size());
  std::vector<Node> open = {entry};
  reached[entry] = true;
  while (!open.empty()) {
    const Node node = open.back();
    open.pop_back();
    for (const Node next : successors[node]) {
      if (reached[next]) continue;
      reached[next] = true;
      open.push_back(next);
    }
  }
  return reached;
}

}  // namespace

FissionTree::FissionTree(const Graph& graph, bool exact) : graph_(&graph), exact_(exact), operands_(graph) {
  for (const Dimension& dimension : dimensions_of(operands_, exact)) {
    if (std::optional<Grown> grown = reached_from_main_entry(dimension)) {
      mark_buffers(*grown);
      grown_.push_back(*std::move(grown));
    }
  }
}

std::int64_t FissionTree::size_of(BufferId buffer) const {
  return static_cast<std::int64_t>(graph_->buffer(buffer).size.count());
}

// The ops that can be reached from one of them, from which the most can be. Others that the dimension begins with, such
// as a mask, would hide who dominates whom: they stay outside, and what they make is read in parts.
std::optional<FissionTree::Grown> FissionTree::reached_from_main_entry(const Dimension& dimension) const {
  std::map<OpId, Node> node_of;
  for (Node i = 0; i < dimension.size(); ++i) node_of[dimension[i].op] = i;
  std::vector<std::pair<std::size_t, Node>> forwards;
  std::vector<bool> has_before(dimension.size());
  for (Node i = 0; i < dimension.size(); ++i) {
    const auto [id, axis] = dimension[i];
    const Op op = graph_->op(id);
    for (std::size_t r = 0; r < op.reads.size(); ++r) {
      if (graph_->axis(id, axis).reads[r] == Bytes(0)) continue;
      const std::optional<OpId> writer = graph_->version(graph_->value(op.reads[r]).version).writer;
      const auto before = writer ? node_of.find(*writer) : node_of.end();
      if (before == node_of.end() || before->second == i) continue;
      forwards.emplace_back(before->second, i);
      has_before[i] = true;
    }
  }
  const Lists<Node> successors = Lists<Node>::group(dimension.size(), forwards);
  std::vector<bool> best;
  std::size_t tried = 0;
  for (Node i = 0; i < dimension.size() && tried < kEntriesTried; ++i) {
    if (has_before[i]) continue;
    ++tried;
    std::vector<bool> reached = reached_from(i, successors);
    if (std::ranges::count(reached, true) > std::ranges::count(best, true)) best = std::move(reached);
  }
  if (std::ranges::count(best, true) < 2) return std::nullopt;
  Dimension ops;
  std::vector<Node> number(dimension.size());
  for (Node i = 0; i < dimension.size(); ++i) {
    if (!best[i]) continue;
    ops.push_back(dimension[i]);
    number[i] = static_cast<Node>(ops.size());
  }
  std::vector<std::pair<std::size_t, Node>> backwards;
  for (const auto& [before, after] : forwards) {
    if (best[before] && best[after]) backwards.emplace_back(number[after], number[before]);
  }
  DominatorTree tree(Lists<Node>::group(ops.size() + 1, backwards));
  return Grown{std::move(ops), std::move(tree), {}, {}};
}

// A region reads a buffer and does not make it if one of its readers is in it and its maker is not. The nodes above at
// least one of several are counted once by taking the lowest node above each two neighbours off again.
void FissionTree::mark_buffers(Grown& grown) const {
  std::map<BufferId, std::vector<Node>> users;
  std::map<BufferId, Node> maker;
  for (Node i = 0; i < grown.ops.size(); ++i) {
    const OpId id = grown.ops[i].op;
    for (const BufferId buffer : operands_.of(id)) {
      if (graph_->buffer(buffer).planned()) users[buffer].push_back(i + 1);
    }
    for (const VersionId write : graph_->op(id).writes) {
      const Version version = graph_->version(write);
      if (version.index > 0 || !graph_->buffer(version.buffer).planned()) continue;
      maker[version.buffer] = i + 1;
      grown.made.push_back({version.buffer, i + 1, 1});
    }
  }
  for (auto& [buffer, nodes] : users) {
    std::ranges::sort(nodes, {}, [&](Node node) { return grown.tree.enter(node); });
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      grown.read.push_back({buffer, nodes[i], 1});
      if (i > 0) grown.read.push_back({buffer, grown.tree.lowest_above(nodes[i - 1], nodes[i]), -1});
    }
    // The maker is among the users: all above it make the buffer.
    if (const auto made = maker.find(buffer); made != maker.end()) grown.read.push_back({buffer, made->second, -1});
  }
}

// By node: of the region that it dominates, itself left out.
std::vector<std::int64_t> FissionTree::scores(const Grown& grown, const std::vector<bool>& hot) const {
  std::vector<std::int64_t> made(grown.tree.size());
  for (const Mark& mark : grown.made) {
    if (hot[mark.buffer.index()]) made[mark.node] += size_of(mark.buffer);
  }
  std::vector<std::int64_t> read(grown.tree.size());
  for (const Mark& mark : grown.read) {
    if (!hot[mark.buffer.index()]) read[mark.node] += mark.sign * size_of(mark.buffer);
  }
  const std::vector<std::int64_t> own = made;
  made = grown.tree.sums_below(std::move(made));
  read = grown.tree.sums_below(std::move(read));
  std::vector<std::int64_t> scores(grown.tree.size());
  for (Node node = 0; node < grown.tree.size(); ++node) scores[node] = (made[node] - own[node]) / 2 - read[node];
  return scores;
}

std::vector<FissionCandidate> FissionTree::candidates(const std::vector<bool>& hot, std::size_t levels,
                                                      const std::function<bool(RegionName)>& can_be) const {
  std::vector<std::vector<std::int64_t>> all_scores;
  std::int64_t highest_of_all = 0;
  for (const Grown& grown : grown_) {
    all_scores.push_back(scores(grown, hot));
    highest_of_all = std::max(highest_of_all, std::ranges::max(all_scores.back()));
  }
  std::vector<FissionCandidate> found;
  for (std::uint32_t d = 0; d < grown_.size(); ++d) {
    const DominatorTree& tree = grown_[d].tree;
    const std::vector<std::int64_t>& score = all_scores[d];
    const std::int64_t highest = std::ranges::max(score);
    if (highest <= 0 || highest < highest_of_all / kWorthwhile) continue;
    const auto level_of = [&](Node node) {  // 0 for scores that are too low
      return score[node] <= 0 ? 0 : static_cast<std::int64_t>(levels) * score[node] / highest;
    };
    // A node is taken if none below it is of its level. Children come after their parents.
    std::vector<std::vector<bool>> below(levels + 1, std::vector<bool>(tree.size()));
    const std::size_t first = found.size();
    for (Node node = static_cast<Node>(tree.size()); node-- > 0;) {
      const auto level = static_cast<std::size_t>(level_of(node));
      if (level > 0 && !below[level][node]) {
        below[level][node] = true;
        if (can_be({d, node})) found.push_back({{d, node}, score[node], std::nullopt, true});
      }
      for (std::size_t l = 1; l <= levels; ++l) {
        if (below[l][node]) below[l][tree.parent(node)] = true;
      }
    }
    for (std::size_t i = first; i < found.size(); ++i) {
      const std::optional<std::size_t> parent = parent_of(found[i].name, std::span(found).subspan(first));
      if (!parent) continue;
      found[i].parent = first + *parent;
      found[first + *parent].is_leaf = false;
    }
  }
  return found;
}

std::optional<RegionName> FissionTree::widest() const {
  std::optional<RegionName> found;
  std::int64_t most = 0;
  for (std::uint32_t d = 0; d < grown_.size(); ++d) {
    std::int64_t made = 0;
    for (const Mark& mark : grown_[d].made) made += size_of(mark.buffer);
    if (made <= most) continue;
    found = {d, 0};
    most = made;
  }
  return found;
}

std::vector<CutOp> FissionTree::ops(RegionName name) const {
  const Grown& grown = grown_[name.dimension];
  std::vector<CutOp> ops;
  for (Node i = 0; i < grown.ops.size(); ++i) {
    if (i + 1 != name.top && grown.tree.is_below(i + 1, name.top)) ops.push_back(grown.ops[i]);
  }
  return ops;
}

std::vector<std::uint32_t> FissionTree::counts(std::span<const CutOp> ops) const {
  std::vector<std::uint32_t> common;
  bool is_first = true;
  for (const CutOp& one : ops) {
    std::vector<std::uint32_t> own, both;
    for (const PartCount& parts : graph_->axis(one.op, one.axis).counts) {
      if (parts.exact || !exact_) own.push_back(parts.count);
    }
    std::ranges::set_intersection(own, common, std::back_inserter(both));
    common = is_first ? std::move(own) : std::move(both);
    is_first = false;
  }
  return common;
}

bool FissionTree::holds(RegionName outer, RegionName inner) const {
  return outer.dimension == inner.dimension && grown_[outer.dimension].tree.is_below(inner.top, outer.top);
}

std::optional<std::size_t> FissionTree::parent_of(RegionName name, std::span<const FissionCandidate> candidates) const {
  std::optional<std::size_t> parent;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].name == name || !holds(candidates[i].name, name)) continue;
    if (!parent || holds(candidates[*parent].name, candidates[i].name)) parent = i;
  }
  return parent;
}

}  // namespace lowtide
