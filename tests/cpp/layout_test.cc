#include "lowtide/layout.h"

#include <algorithm>
#include <random>
#include <string>

#include "full_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layout/gaps.h"
#include "quick_layouts.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kSteps = 200'000'000;

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

const Case kFirstFit[] = {
    {"nothing", {}, {}, 0},
    {"staircase",  // of a and b, which begin together, b lives longer; d lives longer than c and takes a's place
     {item(0, 2, 64), item(0, 4, 64), item(2, 3, 64), item(2, 4, 64)},
     {64, 0, 128, 64},
     192},
    {"aligned", {item(0, 1, 100), item(0, 1, 10)}, {0, 128}, 138},
    {"too_small",  // the gap that the second leaves does not hold the last
     {item(0, 1, 64), item(0, 2, 64), item(0, 9, 64), item(1, 4, 128), item(2, 4, 128)},
     {128, 64, 0, 128, 256},
     384},
    {"joined",  // two neighbours end, and what they leave is one gap
     {item(0, 9, 64), item(0, 5, 64), item(0, 4, 64), item(0, 8, 64), item(5, 6, 128)},
     {0, 128, 192, 64, 128},
     256},
    {"empty_items", {item(0, 1, 0), item(3, 3, 64), item(0, 9, 64)}, {0, 0, 0}, 64},
};

template <std::size_t kCount>
void expect_layouts(const char* algorithm, const Case (&cases)[kCount]) {
  for (const Case& c : cases) {
    const NamedLayout made = unwrap(lay_out(c.items, {.algorithm = algorithm}));
    std::vector<std::uint64_t> offsets(made.layout.offsets.size());
    std::ranges::transform(made.layout.offsets, offsets.begin(), &Bytes::count);
    EXPECT_EQ(offsets, c.offsets) << c.name;
    EXPECT_EQ(made.layout.arena, Bytes(c.arena)) << c.name;
    EXPECT_EQ(made.algorithm, algorithm);
  }
}

TEST(Layout, GreedyBySize) {
  expect_layouts("greedy_by_size", kGreedyBySize);
}

TEST(Layout, FirstFit) {
  expect_layouts("first_fit", kFirstFit);
}

std::vector<LayoutItem> random_items(std::mt19937_64& random, std::size_t count, std::size_t steps, std::size_t life) {
  std::vector<LayoutItem> items;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = random() % steps;
    items.push_back(item(begin, begin + random() % life, random() % 300));
  }
  return items;
}

// The picture of gaps.h.
TEST(Layout, Gaps) {
  Gaps gaps;
  EXPECT_EQ(gaps.take(17), 0);
  gaps.give_back(5, 8);
  gaps.give_back(12, 14);
  EXPECT_EQ(gaps.take(4), 17) << "neither gap has 4";
  gaps.give_back(17, 21);
  gaps.give_back(8, 12);
  EXPECT_EQ(gaps.take(9), 5) << "one gap from 5 to 14";
  gaps.give_back(5, 14);
  EXPECT_EQ(gaps.take(2), 5);
  EXPECT_EQ(gaps.take(8), 17);
}

// Against a bitmap, unit by unit.
TEST(Layout, GapsAgreeWithABitmap) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    Gaps gaps;
    std::vector<bool> taken(20'000);
    std::vector<std::pair<std::size_t, std::size_t>> pieces;  // begin and length
    for (int i = 0; i < 1000; ++i) {
      if (!pieces.empty() && random() % 100 < 48) {
        std::swap(pieces[random() % pieces.size()], pieces.back());
        const auto [begin, length] = pieces.back();
        pieces.pop_back();
        gaps.give_back(static_cast<Units>(begin), static_cast<Units>(begin + length));
        std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(begin), length, false);
      } else {
        const std::size_t length = 1 + random() % (random() % 4 == 0 ? 30 : 4);
        const auto lowest = std::search_n(taken.begin(), taken.end(), length, false);
        const auto begin = static_cast<std::size_t>(lowest - taken.begin());
        ASSERT_EQ(gaps.take(static_cast<Units>(length)), static_cast<Units>(begin))
            << "seed " << seed << ", call " << i;
        std::fill_n(lowest, length, true);
        pieces.emplace_back(begin, length);
      }
    }
  }
}

void expect_right(std::span<const LayoutItem> items, const NamedLayout& made, const std::string& where) {
  const Layout& layout = made.layout;
  const auto is_empty = [&](std::size_t i) { return items[i].size == Bytes(0) || items[i].begin >= items[i].end; };
  Bytes highest;
  ASSERT_EQ(layout.offsets.size(), items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (is_empty(i)) continue;
    EXPECT_TRUE(is_aligned(layout.offsets[i]));
    highest = std::max(highest, layout.offsets[i] + items[i].size);
    for (std::size_t j = 0; j < i; ++j) {
      const bool together = !is_empty(j) && items[i].begin < items[j].end && items[j].begin < items[i].end;
      const bool apart = layout.offsets[i] + items[i].size <= layout.offsets[j] ||
                         layout.offsets[j] + items[j].size <= layout.offsets[i];
      ASSERT_TRUE(!together || apart) << where << ": " << made.algorithm << ", items " << j << " and " << i;
    }
  }
  EXPECT_EQ(layout.arena, highest) << where << ": " << made.algorithm;
}

// Every quick algorithm and the choice among them, on random items, pair by pair.
TEST(Layout, EveryAlgorithmKeepsApartWhatLivesTogether) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::string where = "seed " + std::to_string(seed);
    std::mt19937_64 random(seed);
    const std::vector<LayoutItem> items = random_items(random, random() % 40, 20, 8);
    for (const std::string_view name : quick_layouts()) {
      const NamedLayout made = unwrap(lay_out(items, {.algorithm = name, .steps = kSteps}));
      expect_right(items, made, where);
      EXPECT_EQ(unwrap(lay_out(items, {.algorithm = name, .steps = kSteps})).layout.offsets, made.layout.offsets)
          << name << " is not deterministic";
    }
  }
}

// Many items of which few live together, and many of which most do: large enough for each way of searching.
TEST(Layout, SparseAndDense) {
  for (const std::size_t life : {4u, 3000u}) {
    std::mt19937_64 random(life);
    const std::vector<LayoutItem> items = random_items(random, kSanitized ? 500 : 2000, 3000, life);
    for (const std::string_view name : quick_layouts())
      expect_right(items, unwrap(lay_out(items, {.algorithm = name, .steps = kSteps})), "random items");
  }
}

TEST(Layout, AutoTakesTheSmallest) {
  std::size_t differ = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<LayoutItem> items = random_items(random, 100, 50, 20);
    const NamedLayout chosen = unwrap(lay_out(items, {.steps = kSteps}));
    for (const std::string_view name : quick_layouts()) {
      const Bytes arena = unwrap(lay_out(items, {.algorithm = name, .steps = kSteps})).layout.arena;
      EXPECT_LE(chosen.layout.arena, arena) << "seed " << seed << ": " << name;
      differ += arena > chosen.layout.arena ? 1 : 0;
    }
  }
  EXPECT_GT(differ, 0u) << "there was nothing to choose";
}

// Sizes are rounded up to whole units, and what ends highest need not be.
TEST(Layout, NoBoundIsBelowWhatIsAlive) {
  const std::vector<LayoutItem> items = {{StepIndex(0), StepIndex(1), Bytes(2'097'152)},
                                         {StepIndex(1), StepIndex(2), Bytes(140'000)}};
  const NamedLayout made = unwrap(lay_out(items));
  EXPECT_EQ(made.layout.arena, Bytes(2'097'152));
  EXPECT_EQ(made.bound, made.layout.arena);
}

TEST(Layout, WorkIsLimited) {
  std::mt19937_64 random(1);
  const std::vector<LayoutItem> items = random_items(random, 1000, 1000, 1000);
  EXPECT_TRUE(lay_out(items, {.algorithm = "greedy_by_size", .steps = 100'000'000}).ok());
  const Result<NamedLayout> refused = lay_out(items, {.algorithm = "greedy_by_size", .steps = 300'000});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::work_limit);
  EXPECT_THAT(refused.error().message, HasSubstr("takes more steps than are left"));
}

TEST(Layout, SizesThatDoNotFitAreRefused) {
  const std::vector<LayoutItem> items = {item(0, 1, ~std::uint64_t{0} / 2), item(0, 1, ~std::uint64_t{0} / 2 + 2)};
  for (const std::string_view name : quick_layouts()) {
    EXPECT_EQ(lay_out(items, {.algorithm = name}).error().code, ErrorCode::size_overflow) << name;
  }
}

TEST(Layout, UnknownNamesAreAnsweredWithTheKnown) {
  const Result<NamedLayout> found = lay_out({}, {.algorithm = "best"});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::unknown_algorithm);
  EXPECT_THAT(found.error().message, HasSubstr("'best'; there are: auto, first_fit, skyline"));
}

}  // namespace
}  // namespace lowtide
