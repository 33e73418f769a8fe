#include "published/roam/roam_layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "lowtide/lifetimes.h"
#include "plan/items.h"
#include "published/roam/side_by_side.h"

namespace lowtide {
namespace {

// An item, as far as the tree is concerned.
struct Owned {
  std::size_t leaf;
  bool activation;
};

// By item, in the order of items_of().
std::vector<Owned> find_owners(const Graph& graph, const Tasks& tasks, const RoamOrder& order, const RoamTree& tree,
                               const Lifetimes& lifetimes) {
  std::vector<std::size_t> leaf_of_ring;
  for (std::size_t leaf = 0; const Rings& rings : tree.leaves()) leaf_of_ring.resize(rings.end, leaf++);
  const auto leaf_at = [&](std::size_t step) {
    return leaf_of_ring[tree.ring[order.segment[order.order[step].index()]]];
  };
  std::vector<bool> is_activation(graph.num_buffers());
  for (Held held = 0; held < tasks.size.size(); ++held) {
    for (const BufferId buffer : tasks.parts[held]) is_activation[buffer.index()] = order.turn.activation[held];
  }
  std::vector<Owned> owners;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    if (!graph.buffer(id).planned()) continue;
    const Life life = lifetimes.lives[id.index()];
    if (life.begin == life.end) {
      owners.push_back({0, false});
      continue;
    }
    const std::uint32_t made_in = order.segment[order.order[life.begin.index()].index()];
    const bool forward = order.turn.segment && made_in <= *order.turn.segment;
    owners.push_back({leaf_at(forward ? life.end.index() - 1 : life.begin.index()), is_activation[id.index()]});
  }
  for (std::size_t step = 0; step < order.order.size(); ++step) {
    if (graph.op(order.order[step]).workspace > Bytes(0)) owners.push_back({leaf_at(step), false});
  }
  return owners;
}

// Where all of its activations end, in a leaf that lies by itself; fixes them there.
Bytes stack_activations(std::vector<LayoutItem>& items, std::span<const std::uint8_t> activation) {
  std::vector<std::size_t> stack;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (activation[i] != 0) stack.push_back(i);
  }
  std::ranges::sort(stack, [&](std::size_t a, std::size_t b) {
    return std::tuple(items[b].end, items[a].begin, a) < std::tuple(items[a].end, items[b].begin, b);
  });
  Bytes top;
  for (const std::size_t i : stack) {
    items[i].fixed = top;
    top += align_up(items[i].size);
  }
  return top;
}

struct LeafLayout {
  Result<NamedLayout> made = Error{};
  Bytes activations;
};

// By item: those that lie upon others and are to be placed again.
std::vector<bool> find_conflicts(std::span<const LayoutItem> items, std::span<const Bytes> offsets,
                                 std::span<const Owned> owners) {
  std::vector<std::size_t> by_begin;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].size > Bytes(0) && items[i].begin < items[i].end) by_begin.push_back(i);
  }
  std::ranges::sort(by_begin, {}, [&](std::size_t i) { return std::pair(items[i].begin, i); });
  const auto worth = [&](std::size_t i) {
    return std::tuple(owners[i].activation, items[i].size, items[i].end.index() - items[i].begin.index(), i);
  };
  std::vector<bool> conflicts(items.size());
  std::map<Bytes, std::size_t> alive;          // by offset: no two of them share a byte
  std::multimap<StepIndex, std::size_t> ends;  // of those
  for (const std::size_t i : by_begin) {
    while (!ends.empty() && ends.begin()->first <= items[i].begin) {
      const std::size_t gone = ends.begin()->second;
      ends.erase(ends.begin());
      if (!conflicts[gone]) alive.erase(offsets[gone]);
    }
    const Bytes top = offsets[i] + items[i].size;
    auto first = alive.upper_bound(offsets[i]);
    if (first != alive.begin() &&
        offsets[std::prev(first)->second] + items[std::prev(first)->second].size > offsets[i]) {
      --first;
    }
    const auto last = alive.lower_bound(top);
    conflicts[i] = std::any_of(first, last, [&](const auto& other) { return worth(other.second) > worth(i); });
    if (conflicts[i]) continue;
    for (auto other = first; other != last; ++other) conflicts[other->second] = true;
    alive.erase(first, last);
    alive.emplace(offsets[i], i);
    ends.emplace(items[i].end, i);
  }
  return conflicts;
}

class Assembly {
 public:
  Assembly(std::vector<LayoutItem> items, std::vector<Owned> owners, std::size_t leaves)
      : items_(std::move(items)), owners_(std::move(owners)), leaves_(leaves) {}

  Result<Layout> run(std::size_t threads, Work& work) {
    Result<std::vector<Bytes>> offsets = put_together(threads, work);
    if (!offsets.ok()) return offsets.error();
    const std::vector<bool> conflicts = find_conflicts(items_, *offsets, owners_);
    placed_again_ = static_cast<std::size_t>(std::ranges::count(conflicts, true));
    if (placed_again_ == 0) {
      Layout layout{*std::move(offsets), Bytes(0)};
      for (std::size_t i = 0; i < items_.size(); ++i) {
        if (items_[i].begin < items_[i].end) layout.arena = std::max(layout.arena, layout.offsets[i] + items_[i].size);
      }
      return layout;
    }
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (!conflicts[i]) items_[i].fixed = (*offsets)[i];
    }
    Result<NamedLayout> made = lay_out(items_, {.steps = work.left()});
    if (!made.ok()) return made.error();
    return std::move(made->layout);
  }
  std::size_t placed_again() const { return placed_again_; }

 private:
  // Each leaf by itself, then upon those around it.
  Result<std::vector<Bytes>> put_together(std::size_t threads, Work& work) {
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t i = 0; i < items_.size(); ++i) pairs.emplace_back(owners_[i].leaf, i);
    const Lists<std::size_t> members = Lists<std::size_t>::group(leaves_, pairs);
    std::vector<LeafLayout> made(leaves_);
    const std::uint64_t each = work.left() / 2 / std::max<std::size_t>(items_.size(), 1);
    side_by_side(leaves_, threads, [&](std::size_t leaf) {
      std::vector<LayoutItem> items;
      std::vector<std::uint8_t> activation;
      for (const std::size_t i : members[leaf]) {
        items.push_back(items_[i]);
        activation.push_back(owners_[i].activation ? 1 : 0);
      }
      made[leaf].activations = stack_activations(items, activation);
      made[leaf].made = lay_out(items, {.steps = each * items.size()});
    });
    work.spend(work.left() / 2);
    std::vector<Bytes> offsets(items_.size());
    Bytes base;
    for (std::size_t leaf = leaves_; leaf-- > 0;) {
      if (!made[leaf].made.ok()) return made[leaf].made.error();
      const std::vector<Bytes>& own = made[leaf].made->layout.offsets;
      for (std::size_t i = 0; i < own.size(); ++i) {
        const std::size_t item = members[leaf][i];
        if (items_[item].begin < items_[item].end && items_[item].size > Bytes(0)) offsets[item] = base + own[i];
      }
      base += made[leaf].activations;
    }
    return offsets;
  }

  std::vector<LayoutItem> items_;
  std::vector<Owned> owners_;
  std::size_t leaves_;
  std::size_t placed_again_ = 0;
};

}  // namespace

Result<RoamPlan> roam_plan(const Graph& given, const RoamPlanOptions& options, Work& work) {
  const Graph graph = given.without_reuses();  // the paper gives every result bytes of its own
  const Tasks tasks = to_tasks(graph);
  RoamOrder order =
      with_part(work, work.left() / 2, [&](Work& part) { return roam_order(graph, tasks, options.order, part); });
  const Result<Lifetimes> lives = lifetimes(graph, order.order);
  if (!lives.ok()) return lives.error();
  RoamTree tree = subgraph_tree(tasks, order, options.node_limit);
  Assembly assembly(items_of(graph, order.order, *lives), find_owners(graph, tasks, order, tree, *lives),
                    tree.leaves().size());
  Result<Layout> layout = assembly.run(options.order.threads, work);
  if (!layout.ok()) return layout.error();
  return RoamPlan{std::move(order), std::move(tree), *std::move(layout), assembly.placed_again()};
}

}  // namespace lowtide
