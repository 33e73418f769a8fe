// The two integer programs that pack, against brute force and the search.
//
//   LOWTIDE_FULL=1   3,000 small problems of each kind instead of 100, and 100 larger ones instead of 20
#include "published/sekiyama/address_programs.h"

#include <cstdio>
#include <map>
#include <random>
#include <string>

#include "brute_force.h"
#include "full_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layout/algorithms.h"
#include "lowtide/published.h"
#include "lowtide/verify.h"
#include "small_problems.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using testing::HasSubstr;

struct Reference {
  std::string_view name;
  AddressSolver run;
};
constexpr Reference kReferences[] = {{"sekiyama_program", sekiyama_program}, {"model_program", model_program}};

Units in_units(const Pieces& problem, Bytes bytes) {
  return static_cast<Units>((bytes.count() + problem.unit.count() - 1) / problem.unit.count());
}

// Whether the program solves the problem with so much work: it is its own bound that is looked at, not what is known
// without it. What it says has to be right in any case.
bool solves(const Reference& reference, std::span<const LayoutItem> items, Bytes smallest, std::uint64_t steps,
            const std::string& where) {
  const Pieces problem = unwrap(to_pieces(items));
  Work work(steps);
  const Result<ProvenOffsets> made = reference.run(problem, work);
  if (!made.ok()) return false;
  const Units top = top_of(problem, made->offsets);
  EXPECT_GE(top, in_units(problem, smallest)) << where;
  EXPECT_LE(made->bound, in_units(problem, smallest)) << where;
  const Status verified = verify_layout(items, problem.layout(made->offsets, items));
  EXPECT_TRUE(verified.ok()) << where << ": " << verified.error().message;
  return made->bound == top;
}

void expect_smallest(Kind kind) {
  const std::uint64_t rounds = full_size() ? 3'000 : kSanitized ? 30 : 100;
  std::uint64_t above_load = 0;
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<LayoutItem> items = small_problem(random, kind);
    const std::optional<Bytes> smallest = smallest_arena(items);
    if (!smallest) continue;
    const Pieces problem = unwrap(to_pieces(items));
    above_load += in_units(problem, *smallest) > problem.highest_load() ? 1 : 0;
    for (const Reference& reference : kReferences) {
      const std::string where = std::string(reference.name) + ", seed " + std::to_string(seed);
      ASSERT_TRUE(solves(reference, items, *smallest, 100'000'000'000, where)) << where;
    }
  }
  EXPECT_TRUE(kind == Kind::plain || above_load > 0) << "nothing was left to prove";
}

TEST(AddressPrograms, SmallestOfSevenItems) {
  expect_smallest(Kind::plain);
}
TEST(AddressPrograms, SmallestOfSevenAlignedItems) {
  expect_smallest(Kind::aligned);
}
TEST(AddressPrograms, SmallestOfSevenItemsSomeOfThemFixed) {
  expect_smallest(Kind::fixed);
}

// Where brute force cannot go, the search of lay_out() proves what is smallest by other means.
std::vector<LayoutItem> larger_problem(std::mt19937_64& random, std::size_t count) {
  std::vector<LayoutItem> items;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = random() % count;
    items.push_back(item(begin, begin + 1 + random() % 6, 1 + random() % 8, random() % 8 == 0 ? 4 : 1));
    if (random() % 16 == 0) items.back().fixed = Bytes(random() % 4 * 4);
  }
  return items;
}

TEST(AddressPrograms, AsSmallAsTheSearchOnLargerProblems) {
  const std::size_t problems = full_size() ? 100 : kSanitized ? 10 : 20;
  std::size_t tried = 0;
  std::size_t above_load = 0;
  std::map<std::string_view, std::size_t> solved;
  for (std::uint64_t seed = 0; tried < problems; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<LayoutItem> items = larger_problem(random, 10 + random() % 16);
    const Result<NamedLayout> best = lay_out(items, {.steps = 500'000'000});
    if (!best.ok()) continue;  // fixed items in each other's way
    const Pieces problem = unwrap(to_pieces(items));
    const bool proven = in_units(problem, best->bound + problem.rounding) >= in_units(problem, best->layout.arena);
    if (!proven) continue;
    ++tried;
    above_load += in_units(problem, best->layout.arena) > problem.highest_load() ? 1 : 0;
    for (const Reference& reference : kReferences) {
      const std::string where = std::string(reference.name) + ", seed " + std::to_string(seed);
      solved[reference.name] += solves(reference, items, best->layout.arena, 500'000'000, where) ? 1 : 0;
    }
  }
  for (const auto& [name, count] : solved) std::printf("%s: %zu of %zu\n", std::string(name).c_str(), count, problems);
  EXPECT_GT(above_load, 0u) << "nothing was left to prove";
  EXPECT_GE(solved["model_program"], problems * 3 / 4);
  EXPECT_GE(solved["sekiyama_program"], problems / 10);
}

// Sizes that hardly ever add up to the same.
std::vector<LayoutItem> hard_problem(std::size_t count, std::size_t longest_life) {
  std::mt19937_64 random(1);
  std::vector<LayoutItem> items;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = random() % count;
    items.push_back(item(begin, begin + 1 + random() % longest_life, 1 + random() % 1000));
  }
  return items;
}

TEST(AddressPrograms, WithLittleWorkTheyFindSomethingOrSayThatTheyDoNot) {
  for (const Reference& reference : kReferences) {
    const std::string_view name = reference.name;
    const Result<NamedLayout> nothing =
        lay_out(hard_problem(30, 30), {.algorithm = name, .others = published().layouts, .steps = 1'000'000});
    ASSERT_FALSE(nothing.ok()) << name;
    EXPECT_EQ(nothing.error().code, ErrorCode::work_limit);
    EXPECT_EQ(nothing.error().message, std::string(name) + " of 30 items takes more steps than are left");
  }
  const std::vector<LayoutItem> items = hard_problem(20, 8);
  const Bytes smallest = unwrap(lay_out(items)).layout.arena;
  const Pieces problem = unwrap(to_pieces(items));
  Work work(1'000'000'000);
  const ProvenOffsets some = unwrap(sekiyama_program(problem, work));
  EXPECT_LT(some.bound, static_cast<Units>(smallest.count())) << "solved with little work";
  EXPECT_GE(arena_of(problem, some.offsets), smallest);
  EXPECT_TRUE(verify_layout(items, problem.layout(some.offsets, items)).ok());
}

TEST(AddressPrograms, WhatIsTooLargeIsRefused) {
  const std::vector<LayoutItem> many(300, item(0, 1, 64));  // 44,850 pairs
  const std::vector<LayoutItem> large = {item(0, 1, std::uint64_t{1} << 40), item(0, 1, 1)};
  for (const Reference& reference : kReferences) {
    for (const std::vector<LayoutItem>& items : {many, large}) {
      const Result<NamedLayout> made = lay_out(items, {.algorithm = reference.name, .others = published().layouts});
      ASSERT_FALSE(made.ok());
      EXPECT_EQ(made.error().code, ErrorCode::work_limit);
      EXPECT_THAT(made.error().message, HasSubstr("takes problems of at most 20000 pairs"));
    }
    EXPECT_EQ(unwrap(lay_out({}, {.algorithm = reference.name, .others = published().layouts})).layout.arena, Bytes(0));
  }
}

TEST(AddressPrograms, ByNameTheyReportWhatTheyProve) {
  std::vector<LayoutItem> items = {item(0, 1, 2), item(0, 1, 3), item(4, 5, 1)};
  items[0].fixed = Bytes(2);  // no room below it for the second
  for (const Reference& reference : kReferences) {
    const std::string_view name = reference.name;
    const NamedLayout made = unwrap(lay_out(items, {.algorithm = name, .others = published().layouts}));
    EXPECT_EQ(made.algorithm, name);
    EXPECT_EQ(made.layout.arena, Bytes(7));
    EXPECT_EQ(made.bound, Bytes(7));
    const Result<NamedLayout> less =
        lay_out(items, {.algorithm = name, .others = published().layouts, .capacity = Bytes(6)});
    ASSERT_FALSE(less.ok());
    EXPECT_EQ(less.error().message,
              "no layout fits into 6 bytes: 2 of the 3 items already do not, at least 7 bytes are needed");
  }
}

}  // namespace
}  // namespace lowtide
