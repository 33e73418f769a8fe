#include "lowtide/layout.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LayoutItem item(std::size_t begin, std::size_t end, std::uint64_t size) {
  return {StepIndex(begin), StepIndex(end), Bytes(size)};
}

struct Case {
  const char* name;
  std::vector<LayoutItem> items;
  std::vector<std::uint64_t> offsets;
  std::uint64_t arena;
};

const Case kGreedyBySize[] = {
    {"nothing", {}, {}, 0},
    {"staircase",  // the picture of layout.h; equal sizes, so the longest life goes first
     {item(0, 2, 64), item(0, 4, 64), item(2, 3, 64), item(2, 4, 64)},
     {64, 0, 128, 64},
     192},
    {"aligned",  // 100 rounds up to 128; the arena ends with the last byte, not its alignment
     {item(0, 1, 100), item(0, 1, 10)},
     {0, 128},
     138},
    {"gap",  // 64 fits in the hole that 128 left: it does not live with it
     {item(0, 2, 256), item(0, 1, 128), item(1, 2, 64)},
     {0, 256, 256},
     384},
    {"empty_items", {item(0, 1, 0), item(3, 3, 64), item(0, 9, 64)}, {0, 0, 0}, 64},
};

TEST(Layout, GreedyBySize) {
  const LayoutAlgorithm algorithm = unwrap(find_layout("greedy_by_size"));
  for (const Case& c : kGreedyBySize) {
    const Layout layout = unwrap(algorithm.run(c.items));
    std::vector<std::uint64_t> offsets(layout.offsets.size());
    std::ranges::transform(layout.offsets, offsets.begin(), &Bytes::count);
    EXPECT_EQ(offsets, c.offsets) << c.name;
    EXPECT_EQ(layout.arena, Bytes(c.arena)) << c.name;
  }
}

// Every registered algorithm, on random items, pair by pair.
TEST(Layout, EveryAlgorithmKeepsApartWhatLivesTogether) {
  for (const LayoutAlgorithm& algorithm : layout_algorithms()) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      std::mt19937_64 random(seed);
      std::vector<LayoutItem> items;
      for (std::size_t i = random() % 40; i > 0; --i) {
        const std::size_t begin = random() % 20;
        items.push_back(item(begin, begin + random() % 8, random() % 300));
      }
      const Layout layout = unwrap(algorithm.run(items));
      Bytes highest;
      const auto is_empty = [&](std::size_t i) { return items[i].size == Bytes(0) || items[i].begin >= items[i].end; };
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (is_empty(i)) continue;
        EXPECT_TRUE(is_aligned(layout.offsets[i]));
        highest = std::max(highest, layout.offsets[i] + items[i].size);
        for (std::size_t j = 0; j < i; ++j) {
          const bool together = !is_empty(j) && items[i].begin < items[j].end && items[j].begin < items[i].end;
          const bool apart = layout.offsets[i] + items[i].size <= layout.offsets[j] ||
                             layout.offsets[j] + items[j].size <= layout.offsets[i];
          ASSERT_TRUE(!together || apart) << algorithm.name << ", seed " << seed << ": items " << j << " and " << i;
        }
      }
      EXPECT_EQ(layout.arena, highest) << algorithm.name << ", seed " << seed;
      const Layout again = unwrap(algorithm.run(items));
      EXPECT_EQ(again.offsets, layout.offsets) << algorithm.name << " is not deterministic";
    }
  }
}

TEST(Layout, SizesThatDoNotFitAreRefused) {
  const std::vector<LayoutItem> items = {item(0, 1, ~std::uint64_t{0} / 2), item(0, 1, ~std::uint64_t{0} / 2 + 2)};
  for (const LayoutAlgorithm& algorithm : layout_algorithms()) {
    EXPECT_EQ(algorithm.run(items).error().code, ErrorCode::size_overflow) << algorithm.name;
  }
}

TEST(Layout, UnknownNamesAreAnsweredWithTheKnown) {
  const Result<LayoutAlgorithm> found = find_layout("best");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::unknown_algorithm);
  EXPECT_THAT(found.error().message, HasSubstr("'best'; there are: greedy_by_size"));
}

}  // namespace
}  // namespace lowtide
