#include "graph/reachability.h"

#include <random>

#include "full_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "random_graph.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;

using Table = std::vector<std::vector<bool>>;  // [a][b]: a must run before b

// Warshall's closure, for a few hundred ops at most.
Table closure(const Dependencies& dependencies) {
  const std::size_t n = dependencies.predecessors.size();
  Table before(n, std::vector<bool>(n));
  for (std::size_t b = 0; b < n; ++b) {
    for (const OpId a : dependencies.predecessors[b]) before[a.index()][b] = true;
  }
  for (std::size_t via = 0; via < n; ++via) {
    for (std::size_t a = 0; a < n; ++a) {
      if (!before[a][via]) continue;
      for (std::size_t b = 0; b < n; ++b) before[a][b] = before[a][b] || before[via][b];
    }
  }
  return before;
}

// A search from every op: for some thousands.
Table searched(const Dependencies& dependencies) {
  const std::size_t n = dependencies.predecessors.size();
  Table before(n, std::vector<bool>(n));
  for (std::size_t a = 0; a < n; ++a) {
    std::vector<OpId> waiting = {OpId(a)};
    while (!waiting.empty()) {
      const OpId op = waiting.back();
      waiting.pop_back();
      for (const OpId after : dependencies.successors[op.index()]) {
        if (before[a][after.index()]) continue;
        before[a][after.index()] = true;
        waiting.push_back(after);
      }
    }
  }
  return before;
}

Table from_blocks(const Dependencies& dependencies, Side side, std::size_t threads) {
  const std::size_t n = dependencies.predecessors.size();
  Table before(n, std::vector<bool>(n));
  std::size_t columns = 0;
  for_each_block(dependencies, side, threads, [&](const ReachabilityBlock& block) {
    EXPECT_EQ(block.first().index(), columns) << "blocks come in ascending order";
    for (std::size_t op = 0; op < n; ++op) {
      std::size_t count = 0;
      for (std::size_t column = 0; column < ReachabilityBlock::kColumns; ++column) {
        if (!block.test(OpId(op), column)) continue;
        ASSERT_LT(column, block.num_columns());
        ++count;
        const std::size_t other = block.first().index() + column;
        (side == Side::ancestors ? before[other][op] : before[op][other]) = true;
      }
      EXPECT_EQ(block.count(OpId(op)), count);
    }
    columns += block.num_columns();
  });
  EXPECT_EQ(columns, n);
  return before;
}

// Edges alone, of ops that touch nothing.
Dependencies from_edges(std::size_t ops, const std::vector<std::pair<std::size_t, std::size_t>>& edges) {
  GraphBuilder builder;
  for (std::size_t i = 0; i < ops; ++i) unwrap(builder.add_op({.name = "op"}));
  for (const auto& [before, after] : edges) unwrap(builder.add_edge(OpId(before), OpId(after)));
  return dependencies(unwrap(std::move(builder).build()));
}

// The picture of reachability.h.
TEST(Reachability, Fork) {
  const Dependencies fork = from_edges(4, {{0, 1}, {0, 2}, {1, 3}});
  for_each_block(fork, Side::ancestors, 1, [](const ReachabilityBlock& block) {
    EXPECT_EQ(block.num_columns(), 4u);
    EXPECT_TRUE(block.test(OpId(3), 0));
    EXPECT_TRUE(block.test(OpId(3), 1));
    EXPECT_FALSE(block.test(OpId(3), 2));
    EXPECT_FALSE(block.test(OpId(3), 3)) << "no op is its own ancestor";
  });
  EXPECT_THAT(count_relatives(fork, Side::ancestors), ElementsAre(0, 1, 1, 2));
  EXPECT_THAT(count_relatives(fork, Side::descendants), ElementsAre(3, 1, 0, 0));
  const Reachability reachability(fork);
  EXPECT_TRUE(reachability.precedes(OpId(0), OpId(3)));
  EXPECT_FALSE(reachability.precedes(OpId(2), OpId(3)));
  EXPECT_FALSE(reachability.precedes(OpId(3), OpId(0)));
  EXPECT_FALSE(reachability.precedes(OpId(1), OpId(1)));
}

TEST(Reachability, NoOps) {
  const Dependencies nothing = from_edges(0, {});
  for_each_block(nothing, Side::ancestors, 3, [](const ReachabilityBlock&) { FAIL() << "there is no block"; });
  EXPECT_THAT(count_relatives(nothing, Side::descendants), ElementsAre());
}

void expect_all_agree(const Dependencies& depends, const Table& expected, const std::string& where) {
  const std::size_t n = expected.size();
  for (const Side side : {Side::ancestors, Side::descendants}) {
    EXPECT_EQ(from_blocks(depends, side, 1), expected) << where;
    EXPECT_EQ(from_blocks(depends, side, 3), expected) << where;
    std::vector<std::uint32_t> counts(n);
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b) counts[side == Side::ancestors ? b : a] += expected[a][b] ? 1 : 0;
    }
    EXPECT_EQ(count_relatives(depends, side, 2), counts) << where;
  }
  const Reachability reachability(depends);
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < n; ++b) {
      ASSERT_EQ(reachability.precedes(OpId(a), OpId(b)), expected[a][b]) << where << ": ops " << a << " and " << b;
    }
  }
}

TEST(Reachability, SmallRandomGraphs) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const Dependencies depends = dependencies(random_graph(random));
    expect_all_agree(depends, closure(depends), "seed " + std::to_string(seed));
  }
}

// Several blocks, the last of them not full, sparse to dense.
TEST(Reachability, RandomEdgesOverSeveralBlocks) {
  for (std::uint64_t seed = 0; seed < (kSanitized ? 2 : 6); ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t ops = 1100 + 10 * seed;
    std::vector<std::pair<std::size_t, std::size_t>> edges;
    for (std::size_t i = (seed + 1) * 400; i > 0; --i) {
      const std::size_t before = random() % (ops - 1);
      edges.emplace_back(before, before + 1 + random() % (ops - 1 - before));
    }
    const Dependencies depends = from_edges(ops, edges);
    expect_all_agree(depends, searched(depends), "seed " + std::to_string(seed));
  }
}

TEST(Reachability, TrainingStep) {
  const Dependencies depends = dependencies(training_graph(1300));
  expect_all_agree(depends, searched(depends), "training step");
}

}  // namespace
}  // namespace lowtide
