#include <algorithm>
#include <bit>
#include <tuple>

#include "layout/algorithms.h"

namespace lowtide {
namespace {

// Raises an offset over the placed items that are in its way, which come from the lowest up.
struct Climb {
  Bytes size;
  Bytes offset = {};

  // Answers false once there is room below `other`.
  bool over(Bytes other, Bytes other_top) {
    if (offset + size <= other) return false;
    offset = std::max(offset, other_top);
    return true;
  }
};

// Placed items in the order of their offsets. Each search looks at all of them, which is the faster way when many live
// together: it touches 24 bytes an item, one after the other.
class ByOffset {
 public:
  explicit ByOffset(std::span<const LayoutItem> items) : items_(items) { placed_.reserve(items.size()); }

  Bytes lowest_gap(std::size_t item) const {
    Climb climb{items_[item].size};
    for (const Placed& other : placed_) {
      if (other.begin >= items_[item].end || items_[item].begin >= other.end) continue;
      if (!climb.over(other.offset, other.top)) break;
    }
    return climb.offset;
  }

  void place(std::size_t item, Bytes offset, Bytes top) {
    const auto where = std::ranges::lower_bound(placed_, offset, {}, &Placed::offset);
    placed_.insert(where, {items_[item].begin, items_[item].end, offset, top});
  }

 private:
  struct Placed {
    StepIndex begin;
    StepIndex end;
    Bytes offset;
    Bytes top;  // first aligned offset above it
  };

  std::span<const LayoutItem> items_;
  std::vector<Placed> placed_;
};

// All items in the order of their first steps, as the leaves of a tree in which each node knows the last step at which
// a placed item below it is alive. A search meets only what lives together with the item, and sorts that by offset.
class ByTime {
 public:
  explicit ByTime(std::span<const LayoutItem> items)
      : items_(items), leaf_(items.size()), places_(items.size()), width_(std::bit_ceil(items.size())) {
    std::vector<std::size_t> order(items.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](std::size_t i) { return std::tuple(items[i].begin, i); });
    for (std::size_t leaf = 0; leaf < order.size(); ++leaf) {
      leaf_[order[leaf]] = leaf;
      begins_.push_back(items[order[leaf]].begin);
    }
    latest_end_.resize(2 * width_);
  }

  Bytes lowest_gap(std::size_t item) {
    near_.clear();
    const auto beyond = std::ranges::lower_bound(begins_, items_[item].end) - begins_.begin();
    collect(1, 0, width_, static_cast<std::size_t>(beyond), items_[item].begin);
    std::ranges::sort(near_, {}, &Place::offset);
    Climb climb{items_[item].size};
    for (const Place& other : near_) {
      if (!climb.over(other.offset, other.top)) break;
    }
    return climb.offset;
  }

  void place(std::size_t item, Bytes offset, Bytes top) {
    places_[leaf_[item]] = {offset, top};
    for (std::size_t node = width_ + leaf_[item]; node > 0 && latest_end_[node] < items_[item].end; node /= 2) {
      latest_end_[node] = items_[item].end;
    }
  }

 private:
  struct Place {
    Bytes offset;
    Bytes top;
  };

  // Of the leaves [first, first + width) below `node`: those before `beyond` that are alive after `begin`.
  void collect(std::size_t node, std::size_t first, std::size_t width, std::size_t beyond, StepIndex begin) {
    if (first >= beyond || latest_end_[node] <= begin) return;
    if (width == 1) return near_.push_back(places_[first]);
    collect(2 * node, first, width / 2, beyond, begin);
    collect(2 * node + 1, first + width / 2, width / 2, beyond, begin);
  }

  std::span<const LayoutItem> items_;
  std::vector<std::size_t> leaf_;      // by item
  std::vector<StepIndex> begins_;      // by leaf
  std::vector<Place> places_;          // by leaf
  std::size_t width_;                  // a power of two: how many leaves the tree has room for
  std::vector<StepIndex> latest_end_;  // by node: 1 is the root, 2 i and 2 i + 1 are below i
  std::vector<Place> near_;
};

// Largest first; among equals the longer life, then the earlier one, then the lower index: a total order, so that the
// layout does not depend on the sort.
std::vector<std::size_t> placing_order(std::span<const LayoutItem> items) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (needs_place(items[i])) indices.push_back(i);
  }
  std::ranges::sort(indices, {}, [&](std::size_t i) {
    const LayoutItem& item = items[i];
    return std::tuple(~item.size.count(), ~(item.end.value() - item.begin.value()), item.begin, i);
  });
  return indices;
}

// How many pairs of items live together at some step.
std::uint64_t count_pairs(std::span<const LayoutItem> items, std::span<const std::size_t> placed) {
  std::vector<StepIndex> begins;
  std::vector<StepIndex> ends;
  for (const std::size_t i : placed) {
    begins.push_back(items[i].begin);
    ends.push_back(items[i].end);
  }
  std::ranges::sort(begins);
  std::ranges::sort(ends);
  std::uint64_t pairs = 0;
  std::size_t ended = 0;
  for (std::size_t begun = 0; begun < begins.size(); ++begun) {
    while (ends[ended] <= begins[begun]) ++ended;
    pairs += begun - ended;
  }
  return pairs;
}

template <typename Neighbours>
Result<Layout> place_all(std::span<const LayoutItem> items, std::span<const std::size_t> order, Neighbours placed) {
  Layout layout{std::vector<Bytes>(items.size()), Bytes(0)};
  for (const std::size_t i : order) {
    const Bytes offset = placed.lowest_gap(i);
    const std::optional<Bytes> end = checked_add(offset, items[i].size);
    if (!end || *end + kAlignment == Bytes::max()) return does_not_fit(i, items[i].size);
    placed.place(i, offset, align_up(*end));
    layout.offsets[i] = offset;
    layout.arena = std::max(layout.arena, *end);
  }
  return layout;
}

// What meeting one item costs, measured: one of a row, or one of a tree that is then sorted.
constexpr std::uint64_t kStepsInRow = 1;
constexpr std::uint64_t kStepsInTree = 64;

}  // namespace

Result<Layout> greedy_by_size(std::span<const LayoutItem> items, Work& work) {
  const std::vector<std::size_t> order = placing_order(items);
  const std::uint64_t row_steps = kStepsInRow * order.size() * order.size() / 2;
  const std::uint64_t tree_steps = kStepsInTree * (order.size() + count_pairs(items, order));
  const std::uint64_t steps = std::min(row_steps, tree_steps);
  if (!work.spend(steps)) {
    return Error{ErrorCode::work_limit, words("greedy_by_size of ", order.size(), " items takes ", steps,
                                              " steps, but ", work.left(), " are left")};
  }
  return row_steps <= tree_steps ? place_all(items, order, ByOffset(items)) : place_all(items, order, ByTime(items));
}

}  // namespace lowtide
