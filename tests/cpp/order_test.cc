// Orders and what is proven about them: against full dynamic programming where that is possible.
//
//   LOWTIDE_FULL=1   20,000 random graphs instead of 1,000
#include <algorithm>
#include <random>
#include <string>

#include "best_order.h"
#include "expect_order.h"
#include "full_size.h"
#include "gtest/gtest.h"
#include "lowtide/lifetimes.h"
#include "lowtide/verify.h"
#include "order/best.h"
#include "order/down_set_search.h"
#include "order/greedy.h"
#include "random_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

constexpr Direction kDirections[] = {Direction::forwards, Direction::backwards};

// What is held forwards and backwards is what lifetimes() sees, and undoing leaves no trace.
TEST(Order, ProgressHoldsWhatLifetimesSay) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const Tasks tasks = to_tasks(graph);
    const Order order = random_order(graph, random);
    const Lifetimes lives = unwrap(lifetimes(graph, order));
    ASSERT_EQ(peak_of(tasks, order), static_cast<std::int64_t>(lives.peak.count())) << seed;
    for (const Direction direction : kDirections) {
      Progress progress(tasks, direction);
      const std::int64_t at_first = progress.held();
      for (std::size_t k = 0; k < order.size(); ++k) {
        const std::size_t step = direction == Direction::forwards ? k : order.size() - 1 - k;
        const auto task = static_cast<Task>(order[step].index());
        ASSERT_TRUE(progress.ready().contains(progress.place_of(task))) << seed;
        // There and back: another ready task first.
        const Task other = progress.task_at(*progress.ready().begin());
        const std::int64_t held = progress.held();
        progress.run(other);
        progress.undo();
        ASSERT_EQ(progress.held(), held) << seed;
        ASSERT_EQ(progress.needed(task), static_cast<std::int64_t>(lives.live[step].count())) << seed << " at " << step;
        progress.run(task);
      }
      ASSERT_TRUE(progress.done());
      ASSERT_EQ(progress.order(), order);
      while (progress.num_run() > 0) progress.undo();
      ASSERT_EQ(progress.held(), at_first);
    }
  }
}

TEST(Order, GreedyOrdersAreOrders) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const Tasks tasks = to_tasks(random_graph(random));
    for (const Direction direction : kDirections) {
      for (const Greed greed :
           {Greed::change, Greed::needed, Greed::climb_least, Greed::climb_in_turn, Greed::latest}) {
        expect_order(tasks, greedy_order(tasks, greed, direction), "seed " + std::to_string(seed));
      }
    }
  }
}

TEST(Order, TheBestIsThatOfDynamicProgramming) {
  const std::uint64_t rounds = full_size() ? 20'000 : kSanitized ? 100 : 1'000;
  std::uint64_t better = 0;
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    std::mt19937_64 random(seed);
    const std::string where = "seed " + std::to_string(seed);
    const Tasks tasks = to_tasks(random_graph(random));
    const std::int64_t smallest = best_peak(tasks);
    Work work(1'000'000'000);
    const ProvenOrder best = best_order(tasks, 1, work);
    expect_order(tasks, best.order, where);
    ASSERT_EQ(best.peak, smallest) << where;
    ASSERT_EQ(best.bound, smallest) << where << ": not proven";
    ASSERT_EQ(peak_of(tasks, best.order), smallest) << where;
    better += smallest < peak_of(tasks, first_to_last(tasks.count())) ? 1 : 0;

    // Each search by itself: it fits into the least, and into no less.
    const Reachability reachability(tasks.needs);
    for (const Direction direction : kDirections) {
      for (const bool least_change_first : {true, false}) {
        const OrderSearchOptions options{direction, least_change_first};
        const OrderSearchResult fits = search_order(tasks, reachability, smallest, options, work);
        ASSERT_EQ(fits.fits, Fits::yes) << where;
        ASSERT_LE(peak_of(tasks, fits.order), smallest) << where;
        if (smallest == 0) continue;
        ASSERT_EQ(search_order(tasks, reachability, smallest - 1, options, work).fits, Fits::no) << where;
      }
    }
  }
  EXPECT_GT(better, rounds / 4) << "program order was good enough";
}

// A failure on the way should find as much as possible as it was.
TEST(Order, WhatChangesResidentBuffersAloneRunsLast) {
  GraphBuilder builder;
  const BufferId weight = unwrap(builder.add_buffer(
      {.size = Bytes(64), .residence = Residence::resident, .role = Role::parameter, .name = "w", .initial = true}));
  std::vector<ValueId> values;
  for (const char* name : {"a", "b"}) {
    const BufferId buffer = unwrap(builder.add_buffer({.size = Bytes(100), .name = name}));
    unwrap(builder.add_op({.name = "make", .writes = {buffer}}));
    values.push_back(unwrap(builder.add_value(buffer, "uint8", std::vector<std::int64_t>{100})));
  }
  for (const ValueId value : values) unwrap(builder.add_op({.name = "use", .reads = {value}}));
  unwrap(builder.add_op({.name = "decay", .writes = {weight}, .workspace = Bytes(8)}));
  const Graph graph = unwrap(std::move(builder).build());
  const Tasks tasks = to_tasks(graph);
  Work work(100'000'000);
  const ProvenOrder best = best_order(tasks, 1, work);
  EXPECT_EQ(best.peak, 100);
  EXPECT_EQ(best.order.back(), OpId(4));
}

TEST(Order, TheBestIsTheSameWithAnyNumberOfThreads) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const Tasks tasks = to_tasks(random_graph(random));
    Work alone(100'000'000);
    Work together(100'000'000);
    ASSERT_EQ(best_order(tasks, 1, alone).order, best_order(tasks, 2, together).order);
    ASSERT_EQ(alone.left(), together.left());
  }
}

}  // namespace
}  // namespace lowtide
