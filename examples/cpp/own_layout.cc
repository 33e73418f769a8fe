// A layout algorithm of one's own: found by its name, and verified before it is believed.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "lowtide/budget.h"
#include "lowtide/layout.h"

using namespace lowtide;

// Each item above all items before it that live at the same time.
Result<BoundedLayout> stacked(std::span<const LayoutItem> items, Work& work) {
  BoundedLayout made{{std::vector<Bytes>(items.size()), Bytes(0)}};
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!work.spend(i)) return Error{ErrorCode::work_limit, "stacked takes more steps than are left"};
    Bytes& offset = made.layout.offsets[i];
    for (std::size_t j = 0; j < i; ++j) {
      if (items[j].begin < items[i].end && items[i].begin < items[j].end) {
        offset = std::max(offset, align_up(made.layout.offsets[j] + items[j].size));
      }
    }
    made.layout.arena = std::max(made.layout.arena, offset + items[i].size);
  }
  return made;
}

int main() {
  std::vector<LayoutItem> items;
  for (std::size_t i = 0; i < 100; ++i) items.push_back({StepIndex(i), StepIndex(i + 7), Bytes(64 * (1 + i * i % 13))});
  const std::vector<LayoutAlgorithm> mine = {{"stacked", "Above all that live with it.", stacked}};
  for (const char* algorithm : {"stacked", "greedy_by_size", "auto"}) {
    const Result<NamedLayout> made = lay_out(items, {.algorithm = algorithm, .others = mine});
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.error().message.c_str());
      return 1;
    }
    std::printf("%-15s %s, at least %s\n", algorithm, format_bytes(made->layout.arena).c_str(),
                format_bytes(made->bound).c_str());
  }
}
