#include <algorithm>
#include <tuple>

#include "layout/algorithms.h"
#include "layout/gaps.h"

namespace lowtide {

// O(n log n) for any items: never too much work.
Result<Layout> first_fit(std::span<const LayoutItem> items, Work&) {
  std::vector<std::size_t> arrivals;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (needs_place(items[i])) arrivals.push_back(i);
  }
  std::vector<std::size_t> departures = arrivals;
  // Of those that begin together the longest life goes lowest, then the largest, then the lowest index: a total order,
  // so that the layout does not depend on the sort.
  std::ranges::sort(arrivals, {}, [&](std::size_t i) {
    return std::tuple(items[i].begin, ~items[i].end.value(), ~items[i].size.count(), i);
  });
  std::ranges::sort(departures, {}, [&](std::size_t i) { return std::tuple(items[i].end, i); });

  Layout layout{std::vector<Bytes>(items.size()), Bytes(0)};
  Gaps gaps;
  auto leaving = departures.begin();
  for (const std::size_t i : arrivals) {
    for (; items[*leaving].end <= items[i].begin; ++leaving) {
      const Bytes offset = layout.offsets[*leaving];
      gaps.give_back(offset, offset + align_up(items[*leaving].size));
    }
    const std::optional<Bytes> offset = gaps.take(align_up(items[i].size));
    if (!offset) return does_not_fit(i, items[i].size);
    layout.offsets[i] = *offset;
    layout.arena = std::max(layout.arena, *offset + items[i].size);
  }
  return layout;
}

}  // namespace lowtide
