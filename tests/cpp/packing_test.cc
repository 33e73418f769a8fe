// The search for the smallest arena: against brute force where that is possible, and on problems known to be hard.
//
//   LOWTIDE_FULL=1   300,000 small problems instead of 20,000, and 20 permutations of the hard ones instead of 3
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>

#include "brute_force.h"
#include "full_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layout/core_first.h"
#include "layout/valley_search.h"
#include "lowtide/buffers.h"
#include "lowtide/layout.h"
#include "lowtide/verify.h"
#include "processor_time.h"
#include "small_problems.h"
#include "unwrap.h"

namespace lowtide {
namespace {

void expect_apart(std::span<const LayoutItem> items, const Layout& layout, const std::string& where) {
  const Status verified = verify_layout(items, layout);
  ASSERT_TRUE(verified.ok()) << where << ": " << verified.error().message;
  for (std::size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(layout.offsets[i].count() % items[i].alignment.count(), 0u) << where;
    EXPECT_EQ(layout.offsets[i], items[i].fixed.value_or(layout.offsets[i])) << where;
    EXPECT_LE(layout.offsets[i] + items[i].size, layout.arena) << where;
    for (std::size_t j = 0; j < i; ++j) {
      const bool together = items[i].begin < items[j].end && items[j].begin < items[i].end;
      const bool apart = layout.offsets[i] + items[i].size <= layout.offsets[j] ||
                         layout.offsets[j] + items[j].size <= layout.offsets[i];
      ASSERT_TRUE(!together || apart) << where << ", items " << j << " and " << i;
    }
  }
}

void expect_smallest(Kind kind) {
  const std::uint64_t rounds = (full_size() ? 300'000 : kSanitized ? 2'000 : 20'000) / 3;
  std::uint64_t above_load = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    std::mt19937_64 random(seed);
    const std::string where = "seed " + std::to_string(seed);
    const std::vector<LayoutItem> items = small_problem(random, kind);
    const std::optional<Bytes> smallest = smallest_arena(items);
    const Result<NamedLayout> made = lay_out(items);
    ASSERT_EQ(made.ok(), smallest.has_value()) << where;
    if (!smallest) {
      EXPECT_EQ(made.error().code, ErrorCode::invalid_item);
      ++refused;
      continue;
    }
    const Pieces problem = unwrap(to_pieces(items));
    const auto in_units = [&](Bytes bytes) {
      return static_cast<Units>((bytes.count() + problem.unit.count() - 1) / problem.unit.count());
    };
    const Units units = in_units(*smallest);
    ASSERT_EQ(in_units(made->layout.arena), units) << where;
    ASSERT_LE(made->bound, *smallest) << where;
    ASSERT_GE(in_units(made->bound + problem.rounding), units) << where << ": not proven";
    ASSERT_TRUE(problem.rounding > Bytes(0) || made->bound == *smallest) << where;
    expect_apart(items, made->layout, where);

    if (units > problem.highest_load()) ++above_load;
    // One unit less is refused, and those who are said to be in each other's way are.
    Work work = Work::unlimited();
    const SearchResult less = search_packing(problem, units - 1, {.prove = seed % 2 == 0}, work);
    ASSERT_EQ(less.verdict, Verdict::infeasible) << where;
    std::vector<LayoutItem> conflict;
    for (const std::uint32_t piece : less.conflict) conflict.push_back(items[problem.pieces[piece].item]);
    ASSERT_GE(in_units(*smallest_arena(conflict)), units) << where << ": " << conflict.size() << " of " << items.size();
  }
  std::printf("%lu problems, %lu whose arena is above the most bytes alive, %lu refused\n",
              static_cast<unsigned long>(rounds), static_cast<unsigned long>(above_load),
              static_cast<unsigned long>(refused));
  EXPECT_TRUE(kind == Kind::plain || above_load > 0) << "nothing was left to prove";
}

TEST(Packing, SmallestOfSevenItems) {
  expect_smallest(Kind::plain);
}
TEST(Packing, SmallestOfSevenAlignedItems) {
  expect_smallest(Kind::aligned);
}
TEST(Packing, SmallestOfSevenItemsSomeOfThemFixed) {
  expect_smallest(Kind::fixed);
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Packing, ChallengingProblemsOfMinimalloc) {
  constexpr Bytes kCapacity(1'048'576);
  double all = 0;
  double worst = 0;
  for (char name = 'A'; name <= 'K'; ++name) {
    const std::string path = std::string(LOWTIDE_BENCH_DATA) + "/minimalloc/" + name + ".1048576.csv";
    std::vector<LayoutItem> items = to_items(unwrap(load_buffers(path)));
    ASSERT_GT(items.size(), 100u) << path;
    for (std::uint64_t seed = 0; seed < (full_size() ? 20u : 3u); ++seed) {
      std::mt19937_64 random(seed);
      if (seed > 0) std::shuffle(items.begin(), items.end(), random);
      const auto start = std::chrono::steady_clock::now();
      const Result<NamedLayout> made = lay_out(items, {.capacity = kCapacity});
      const double seconds = seconds_since(start);
      ASSERT_TRUE(made.ok()) << path << ": " << made.error().message;
      EXPECT_LE(made->layout.arena, kCapacity) << path;
      expect_apart(items, made->layout, path);
      all += seconds;
      worst = std::max(worst, seconds);
    }
  }
  std::printf("all %.3f s, worst %.3f s\n", all, worst);
}

TEST(Packing, ATooSmallCapacityIsRefusedWithTheItemsThatDoNotFit) {
  const std::vector<LayoutItem> items = {item(0, 2, 2), item(1, 3, 1), item(2, 4, 2), item(3, 5, 1), item(9, 10, 1)};
  const Result<NamedLayout> less = lay_out(items, {.capacity = Bytes(2)});
  ASSERT_FALSE(less.ok());
  EXPECT_EQ(less.error().code, ErrorCode::packing_infeasible);
  EXPECT_EQ(less.error().message,
            "no layout fits into 2 bytes: 2 of the 5 items already do not, at least 3 bytes are needed");
  ASSERT_EQ(less.error().infeasible.culprits.size(), 2u);
  EXPECT_EQ(less.error().infeasible.culprits[0].name, "item 0");
  EXPECT_EQ(less.error().infeasible.bound, Bytes(3));
}

TEST(Packing, ACapacityAboveTheMostAliveIsRefusedByProof) {
  std::vector<LayoutItem> items = {item(0, 1, 2), item(0, 1, 3), item(4, 5, 1)};
  items[0].fixed = Bytes(2);  // no room below it for the second
  const Result<NamedLayout> less = lay_out(items, {.capacity = Bytes(6)});
  ASSERT_FALSE(less.ok());
  EXPECT_EQ(less.error().code, ErrorCode::packing_infeasible);
  EXPECT_EQ(less.error().infeasible.bound, Bytes(7));
  ASSERT_GE(less.error().infeasible.culprits.size(), 2u);
  EXPECT_EQ(less.error().infeasible.culprits[0].name, "item 1");
  EXPECT_EQ(less.error().infeasible.culprits[1].name, "item 0");
  EXPECT_EQ(unwrap(lay_out(items, {.capacity = Bytes(7)})).layout.arena, Bytes(7));
}

TEST(Packing, BlocksOfOneAlignmentProveMoreThanBytesAlive) {
  const std::vector<LayoutItem> items = {item(0, 2, 5, 4), item(0, 2, 6, 4), item(1, 3, 5, 8), item(0, 3, 1)};
  const NamedLayout made = unwrap(lay_out(items));
  EXPECT_EQ(made.layout.arena, Bytes(21));  // blocks of 8, 8 and 8 less the most that one leaves unused
  EXPECT_EQ(made.bound, Bytes(21));
}

// Those that are named do not fit, and without any one of them the others would.
TEST(Packing, NoCulpritCanBeLeftOut) {
  std::uint64_t conflicts = 0;
  for (std::uint64_t seed = 0; seed < trials(10'000, 500); ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<LayoutItem> items = small_problem(random, seed % 2 == 0 ? Kind::plain : Kind::aligned);
    const Bytes smallest = *smallest_arena(items);
    const Pieces problem = unwrap(to_pieces(items));
    if (smallest <= problem.unit) continue;
    const Bytes capacity = smallest - problem.unit;
    const Result<NamedLayout> less = lay_out(items, {.capacity = capacity});
    const std::string where = "seed " + std::to_string(seed);
    ASSERT_FALSE(less.ok()) << where;
    ASSERT_EQ(less.error().code, ErrorCode::packing_infeasible) << where << ": " << less.error().message;
    std::vector<LayoutItem> culprits;
    for (const Culprit& culprit : less.error().infeasible.culprits) {
      culprits.push_back(items[std::stoul(culprit.name.substr(5))]);
    }
    ASSERT_GT(*smallest_arena(culprits), capacity) << where;
    if (problem.rounding > Bytes(0)) continue;
    for (std::size_t i = 0; i < culprits.size() && culprits.size() > 1; ++i) {
      std::vector<LayoutItem> others = culprits;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      ASSERT_LE(*smallest_arena(others), capacity) << where << ": without culprit " << i;
    }
    ++conflicts;
  }
  EXPECT_GT(conflicts, trials(10'000, 500) * 2 / 5);
}

TEST(Packing, ItemsThatMakeNoSenseAreRefused) {
  std::vector<LayoutItem> items = {item(0, 2, 10, 0)};
  EXPECT_EQ(lay_out(items).error().message, "item 0 has an alignment of 0");
  items = {item(0, 2, 10, 8)};
  items[0].fixed = Bytes(12);
  EXPECT_EQ(lay_out(items).error().message, "item 0 is fixed at offset 12, which is no multiple of its alignment 8");
  items = {item(0, 2, 10), item(1, 3, 10)};
  items[0].fixed = Bytes(5);
  items[1].fixed = Bytes(14);
  EXPECT_EQ(lay_out(items).error().message, "items 0 and 1 are fixed on the same bytes while both live");
  items[1].begin = StepIndex(2);
  EXPECT_EQ(unwrap(lay_out(items)).layout.arena, Bytes(24));
  items[1].fixed = Bytes(std::uint64_t{1} << 63);
  EXPECT_EQ(lay_out(items).error().code, ErrorCode::size_overflow);
}

TEST(Packing, WrongLayoutsAreRefused) {
  std::vector<LayoutItem> items = {item(0, 2, 10, 8), item(1, 3, 6), item(2, 4, 4)};
  const Layout right{{Bytes(0), Bytes(10), Bytes(0)}, Bytes(16)};
  EXPECT_TRUE(verify_layout(items, right).ok());
  const auto code = [&](const Layout& layout) { return verify_layout(items, layout).error().code; };
  EXPECT_EQ(code({{Bytes(0), Bytes(9), Bytes(0)}, Bytes(15)}), ErrorCode::block_overlap);
  EXPECT_EQ(code({{Bytes(4), Bytes(14), Bytes(0)}, Bytes(20)}), ErrorCode::misaligned);
  EXPECT_EQ(code({{Bytes(0), Bytes(10), Bytes(0)}, Bytes(17)}), ErrorCode::wrong_arena);
  EXPECT_EQ(code({{Bytes(0), Bytes(10), Bytes(0)}, Bytes(15)}), ErrorCode::outside_arena);
  EXPECT_EQ(code({{Bytes(0), Bytes(10)}, Bytes(16)}), ErrorCode::malformed_plan);
  EXPECT_EQ(code({{Bytes(0), Bytes::max(), Bytes(0)}, Bytes::max()}), ErrorCode::address_overflow);
  items[1].fixed = Bytes(12);
  EXPECT_EQ(code(right), ErrorCode::wrong_block);
}

// Many short lives and some long ones, of sizes over three orders of magnitude.
std::vector<LayoutItem> random_problem(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> share(0.0, 1.0);
  std::vector<LayoutItem> items;
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = static_cast<std::size_t>(share(random) * static_cast<double>(count));
    const auto life = 1 + static_cast<std::size_t>(-std::log(1 - share(random)) * 100);
    items.push_back(item(begin, begin + life, 512 * static_cast<std::uint64_t>(std::exp(share(random) * 9.7))));
  }
  return items;
}

TEST(Packing, LargeProblemsReachTheirBound) {
  for (const std::size_t count : {5'000u, 20'000u}) {
    if (kSanitized && count > 5'000) continue;
    const std::vector<LayoutItem> items = random_problem(count, 1);
    const NamedLayout made = unwrap(lay_out(items, {.steps = 4'000'000'000}));
    EXPECT_EQ(made.layout.arena, made.bound) << count << " items by " << made.algorithm;
    EXPECT_EQ(made.algorithm, "core_first");
    EXPECT_EQ(unwrap(lay_out(items, {.steps = 4'000'000'000})).layout.offsets, made.layout.offsets);
  }
}

// A square of time and addresses cut into `count` rectangles, some of which are then left out: what is left fits into
// the square, and often only just.
std::vector<LayoutItem> cut_square(std::size_t count, double left_out, double across, std::uint64_t seed) {
  constexpr std::uint64_t kSide = 1024;
  struct Rectangle {
    std::uint64_t begin, end, low, high;
    std::uint64_t area() const { return (end - begin) * (high - low); }
  };
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> share(0.0, 1.0);
  std::vector<Rectangle> cut = {{0, kSide, 0, kSide}};
  while (cut.size() < count) {
    std::size_t largest = random() % cut.size();  // of six
    for (int other = 0; other < 5; ++other) {
      const std::size_t next = random() % cut.size();
      if (cut[next].area() > cut[largest].area()) largest = next;
    }
    Rectangle& first = cut[largest];
    Rectangle second = first;
    if (share(random) > across && first.end - first.begin >= 2) {
      first.end = second.begin = first.begin + 1 + random() % (first.end - first.begin - 1);
    } else if (first.high - first.low >= 2) {
      first.high = second.low = first.low + 1 + random() % (first.high - first.low - 1);
    } else {
      continue;
    }
    cut.push_back(second);
  }
  std::vector<LayoutItem> items;
  for (const Rectangle& piece : cut) {
    if (share(random) >= left_out) items.push_back(item(piece.begin, piece.end, piece.high - piece.low));
  }
  std::shuffle(items.begin(), items.end(), random);
  return items;
}

TEST(Packing, CutSquaresFitIntoTheirSide) {
  const std::size_t problems = full_size() ? 100 : 10;
  const std::uint64_t steps = full_size() ? 5'000'000'000 : 1'000'000'000;
  std::size_t solved = 0;
  for (std::size_t k = 0; k < problems; ++k) {
    const std::size_t count = full_size() ? 100 + 18 * k % 400 : 100 + 10 * k;
    const std::vector<LayoutItem> items =
        cut_square(count, 0.02 * static_cast<double>(k % 3), 0.4 + 0.1 * static_cast<double>(k % 3), k);
    const Result<NamedLayout> made = lay_out(items, {.steps = steps, .capacity = Bytes(1024)});
    if (!made.ok()) {
      EXPECT_EQ(made.error().code, ErrorCode::work_limit) << "they do fit";
      continue;
    }
    expect_apart(items, made->layout, "cut square");
    ++solved;
  }
  std::printf("%zu of %zu cut squares put together again\n", solved, problems);
  EXPECT_GE(solved, problems * 7 / 10);
}

TEST(Packing, EachTierHasItsOwnAddressesAndCapacity) {
  std::vector<LayoutItem> items = {item(0, 2, 8), item(0, 2, 8), item(1, 3, 4), item(1, 3, 4)};
  items[1].tier = items[3].tier = 1;
  std::vector<MemoryTier> tiers = {{"device", Bytes(12)}, {"host"}};
  const TieredLayout made = unwrap(lay_out_tiers(items, tiers));
  EXPECT_EQ(made.arenas[0].layout.arena, Bytes(12));
  EXPECT_EQ(made.arenas[1].layout.arena, Bytes(12));
  EXPECT_NE(made.offsets[0], made.offsets[2]);
  EXPECT_NE(made.offsets[1], made.offsets[3]);
  tiers[0].capacity = Bytes(11);
  EXPECT_EQ(lay_out_tiers(items, tiers).error().message,
            "in device: no layout fits into 11 bytes: 2 of the 2 items already do not, at least 12 bytes are needed");
  items[3].tier = 2;
  EXPECT_EQ(lay_out_tiers(items, tiers).error().message, "item 3 is in tier 2; there are 2");
}

// Threads change how long it takes, and nothing else.
TEST(Packing, AnswersAreTheSameWithAnyNumberOfThreads) {
  std::vector<std::vector<LayoutItem>> problems;
  for (const std::size_t count : {300u, 1'000u, 4'000u}) problems.push_back(random_problem(count, count));
  for (const std::uint64_t seed : {1u, 2u, 3u}) problems.push_back(cut_square(150, 0.03, 0.5, seed));
  for (const std::vector<LayoutItem>& items : problems) {
    const NamedLayout alone = unwrap(lay_out(items, {.steps = kSanitized ? 50'000'000u : 500'000'000u}));
    for (const std::size_t threads : {2u, 3u}) {
      const NamedLayout made =
          unwrap(lay_out(items, {.steps = kSanitized ? 50'000'000u : 500'000'000u, .threads = threads}));
      EXPECT_EQ(made.layout.offsets, alone.layout.offsets) << items.size() << " items, " << threads << " threads";
      EXPECT_EQ(made.bound, alone.bound);
      EXPECT_EQ(made.algorithm, alone.algorithm);
    }
  }
}

TEST(Packing, TimeIsLimited) {
  const std::vector<LayoutItem> items = cut_square(1'000, 0.03, 0.5, 1);
  const double start = processor_seconds();
  const NamedLayout made = unwrap(lay_out(items, {.time_limit = std::chrono::milliseconds(200)}));
  EXPECT_LT(processor_seconds() - start, kSanitized ? 20 : 5);
  expect_apart(items, made.layout, "cut square");
  EXPECT_GT(made.layout.arena, made.bound) << "there was enough time, and nothing was shown";
}

TEST(Packing, WorkIsLimited) {
  const std::vector<LayoutItem> items = random_problem(2'000, 2);
  const NamedLayout little = unwrap(lay_out(items, {.steps = 20'000'000}));
  const NamedLayout more = unwrap(lay_out(items, {.steps = 2'000'000'000}));
  EXPECT_LE(more.layout.arena, little.layout.arena);
  const Result<NamedLayout> none = lay_out(items, {.steps = 100'000'000, .capacity = more.bound - Bytes(1)});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::packing_infeasible) << "the bound is known without a search";
}

}  // namespace
}  // namespace lowtide
