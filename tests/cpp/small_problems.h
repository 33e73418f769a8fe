// small_problems.h: random packing problems of so few items that brute force can solve them.
#pragma once

#include <random>
#include <vector>

#include "lowtide/layout.h"
#include "lowtide/units.h"

namespace lowtide {

inline LayoutItem item(std::size_t begin, std::size_t end, std::uint64_t size, std::uint64_t alignment = 1) {
  return {StepIndex(begin), StepIndex(end), Bytes(size), Bytes(alignment)};
}

enum class Kind { plain, aligned, fixed };

// Few steps and few sizes, so that packings are tight. Fixed items lie anywhere, in each other's way too.
inline std::vector<LayoutItem> small_problem(std::mt19937_64& random, Kind kind) {
  std::vector<LayoutItem> items;
  const std::size_t count = 1 + random() % 7;
  const std::size_t steps = 2 + random() % 7;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = random() % steps;
    items.push_back(item(begin, begin + 1 + random() % (steps - begin), 1 + random() % 6));
    if (kind != Kind::plain) items.back().alignment = Bytes(1 + random() % 4);
    if (kind == Kind::fixed && random() % 4 == 0) {
      items.back().fixed = Bytes(random() % 10 * items.back().alignment.count());
    }
  }
  return items;
}

}  // namespace lowtide
