// Plans a chain with a layout algorithm of one's own: found by its name, and verified before it is believed.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "lowtide/plan.h"

using namespace lowtide;

// Each item above all items before it that live at the same time.
Result<BoundedLayout> stacked(std::span<const LayoutItem> items, Work&) {
  BoundedLayout made{{std::vector<Bytes>(items.size()), Bytes(0)}};
  for (std::size_t i = 0; i < items.size(); ++i) {
    Bytes& offset = made.layout.offsets[i];
    for (std::size_t j = 0; j < i; ++j) {
      const bool together = items[j].begin < items[i].end && items[i].begin < items[j].end;
      if (together) offset = std::max(offset, align_up(made.layout.offsets[j] + items[j].size));
    }
    made.layout.arena = std::max(made.layout.arena, offset + items[i].size);
  }
  return made;
}

int main() {
  GraphBuilder builder;
  for (std::size_t i = 0; i < 20; ++i) {
    const BufferId made = *builder.add_buffer({.size = Bytes(64 * (1 + i * i % 13))});
    OpSpec op{.name = "op", .writes = {made}};
    if (i > 0) op.reads = {*builder.add_value(BufferId(i - 1), "uint8", {})};
    if (!builder.add_op(op).ok()) return 1;
  }
  const Result<Graph> graph = std::move(builder).build();
  for (const char* layout : {"stacked", "auto"}) {
    PlanOptions options{.layout = layout};
    options.others.layouts = {{"stacked", "Above all that live with it.", stacked}};
    const Result<Plan> made = plan(*graph, options);
    std::printf("%s: %s\n", layout, made.ok() ? format_bytes(made->arena).c_str() : made.error().message.c_str());
  }
}
