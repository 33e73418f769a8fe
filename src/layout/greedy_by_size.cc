#include <algorithm>
#include <numeric>
#include <tuple>

#include "graph/words.h"
#include "layout/algorithms.h"

namespace lowtide {
namespace {

struct Placed {
  StepIndex begin;
  StepIndex end;
  Bytes offset;
  Bytes top;  // first aligned offset above it
};

// Largest first; among equals the longer life, then the earlier one, then the lower index: a total order, so that the
// layout does not depend on the sort.
std::vector<std::size_t> placing_order(std::span<const LayoutItem> items) {
  std::vector<std::size_t> indices(items.size());
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  std::ranges::sort(indices, std::ranges::less{}, [&](std::size_t i) {
    const LayoutItem& item = items[i];
    return std::tuple(~item.size.count(), ~(item.end.value() - item.begin.value()), item.begin, i);
  });
  return indices;
}

}  // namespace

// Placed items are kept sorted by offset, so that one pass upwards meets the gaps from the lowest. O(n^2) in the worst
// case, with a pass that touches 24 bytes an item.
Result<Layout> greedy_by_size(std::span<const LayoutItem> items) {
  Layout layout{std::vector<Bytes>(items.size()), Bytes(0)};
  std::vector<Placed> placed;
  placed.reserve(items.size());
  for (const std::size_t i : placing_order(items)) {
    const LayoutItem& item = items[i];
    if (item.size == Bytes(0) || item.begin >= item.end) continue;

    Bytes offset;
    for (const Placed& other : placed) {
      if (other.begin >= item.end || item.begin >= other.end) continue;
      if (offset + item.size <= other.offset) break;
      offset = std::max(offset, other.top);
    }
    const std::optional<Bytes> end = checked_add(offset, item.size);
    if (!end || *end + kAlignment == Bytes::max()) {
      return Error{ErrorCode::size_overflow, words("item ", i, " of ", item.size, " bytes does not fit above offset ",
                                                   offset, ": addresses end at 2^64")};
    }
    const auto place = std::ranges::lower_bound(placed, offset, {}, &Placed::offset);
    placed.insert(place, {item.begin, item.end, offset, align_up(*end)});
    layout.offsets[i] = offset;
    layout.arena = std::max(layout.arena, *end);
  }
  return layout;
}

}  // namespace lowtide
