#include "adapt/selection.h"

#include <algorithm>

#include "lowtide/adapt.h"

namespace lowtide {

Bytes peak_of(const BatchNeeds& needs, const std::vector<bool>& dropped) {
  Bytes peak = needs.update;
  Bytes freed_forward;
  Bytes freed_backward;
  for (std::size_t i = 0; i < needs.blocks.size(); ++i) {
    const BlockNeeds& block = needs.blocks[i];
    peak = std::max(peak, (dropped[i] ? block.forward_dropped : block.forward_kept) - freed_forward);
    if (!dropped[i]) continue;
    freed_forward += block.freed_forward;
    freed_backward += block.freed_backward;
  }
  peak = std::max(peak, std::max(needs.tail, needs.turn) - freed_forward);
  const auto pass_back = [&](std::size_t i) {
    const BlockNeeds& block = needs.blocks[i];
    if (dropped[i]) freed_backward -= block.freed_backward;
    peak = std::max(peak, (dropped[i] ? block.backward_dropped : block.backward_kept) - freed_backward);
  };
  if (needs.backward.empty()) {
    for (std::size_t i = needs.blocks.size(); i-- > 0;) pass_back(i);
  } else {
    for (const std::uint32_t i : needs.backward) pass_back(i);
  }
  return peak;
}

Selection selected(const BatchNeeds& needs, std::vector<bool> dropped) {
  Nanos again;
  for (std::size_t i = 0; i < dropped.size(); ++i) {
    if (dropped[i]) again += needs.blocks[i].again;
  }
  const Bytes peak = peak_of(needs, dropped);
  return {std::move(dropped), peak, again};
}

bool is_better(const Selection& a, const Selection& b, Bytes budget) {
  const bool a_fits = a.peak <= budget;
  const bool b_fits = b.peak <= budget;
  if (a_fits != b_fits) return a_fits;
  if (!a_fits) return a.peak < b.peak;
  return a.again != b.again ? a.again < b.again : a.peak < b.peak;
}

Selection select_blocks(const BatchNeeds& needs, Bytes budget) {
  Selection best = selected(needs, std::vector<bool>(needs.blocks.size(), false));
  if (best.peak <= budget) return best;
  for (const Selector& selector : selectors()) {
    Selection next = selector.select(needs, budget);
    if (is_better(next, best, budget)) best = std::move(next);
  }
  return best;
}

Selection least_peak(const BatchNeeds& needs) {
  // Between a budget that nothing keeps and one that is kept.
  Selection best = selected(needs, std::vector<bool>(needs.blocks.size(), true));
  std::uint64_t below = 0;
  while (below < best.peak.count()) {
    const std::uint64_t middle = below + (best.peak.count() - below) / 2;
    Selection next = least_time(needs, Bytes(middle));
    if (next.peak < best.peak) best = std::move(next);
    if (best.peak.count() > middle) below = middle + 1;
  }
  return best;
}

std::span<const Selector> selectors() {
  static constexpr std::array kSelectors = {
      Selector{"mimose", "Algorithm 1 of Mimose: by size, earliest first among blocks of nearly the same.", mimose},
      Selector{"least_time", "The least time to run again within the budget, by dynamic programming.", least_time},
  };
  return kSelectors;
}

}  // namespace lowtide
