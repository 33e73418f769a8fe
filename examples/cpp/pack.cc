// Packs four buffers into the smallest arena there is, and says that no smaller one exists.
#include <cstdio>
#include <vector>

#include "lowtide/budget.h"
#include "lowtide/layout.h"

int main() {
  using namespace lowtide;
  const std::vector<LayoutItem> items = {
      // first step, first step after, bytes
      {StepIndex(0), StepIndex(2), Bytes(64)},
      {StepIndex(0), StepIndex(4), Bytes(64)},
      {StepIndex(2), StepIndex(3), Bytes(64)},
      {StepIndex(2), StepIndex(4), Bytes(64)},
  };
  const Result<NamedLayout> made = lay_out(items);
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.error().message.c_str());
    return 1;
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    std::printf("buffer %zu at %s\n", i, format_bytes(made->layout.offsets[i]).c_str());
  }
  std::printf("arena %s, lower bound %s\n", format_bytes(made->layout.arena).c_str(),
              format_bytes(made->bound).c_str());
}
