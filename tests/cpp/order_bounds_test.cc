#include <algorithm>
#include <bit>
#include <iterator>
#include <random>
#include <string>

#include "best_order.h"
#include "gmock/gmock.h"
#include "graph/reachability.h"
#include "gtest/gtest.h"
#include "order/algorithms.h"
#include "order/bounds.h"
#include "order/max_flow.h"
#include "order/min_cut.h"
#include "random_graph.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

// The smallest peak of all orders, each of them run.
std::int64_t least_of_all_orders(const Tasks& tasks) {
  Order order = first_to_last(tasks.count());
  std::int64_t least = peak_of(tasks, order);
  while (std::next_permutation(order.begin(), order.end())) {
    std::vector<bool> done(tasks.count());
    const bool legal = std::all_of(order.begin(), order.end(), [&](OpId op) {
      done[op.index()] = true;
      const std::span<const OpId> needs = tasks.needs.predecessors[op.index()];
      return std::all_of(needs.begin(), needs.end(), [&](OpId needed) { return done[needed.index()]; });
    });
    if (legal) least = std::min(least, peak_of(tasks, order));
  }
  return least;
}

TEST(BestPeak, IsTheLeastOfAllOrders) {
  std::size_t tried = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    std::mt19937_64 random(seed);
    const Tasks tasks = to_tasks(random_graph(random));
    if (tasks.count() > 7) continue;
    ++tried;
    ASSERT_EQ(best_peak(tasks), least_of_all_orders(tasks)) << "seed " << seed;
  }
  EXPECT_GT(tried, 300u);
}

// Of random tasks, at most 12.
template <typename Check>
void for_each_small(std::uint64_t seeds, const Check& check) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    std::mt19937_64 random(seed);
    const Tasks tasks = to_tasks(random_graph(random));
    if (tasks.count() > 12) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    check(tasks);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

std::int64_t run(std::int64_t (*bound)(const Tasks&, Work&), const Tasks& tasks) {
  Work work = Work::unlimited();
  return bound(tasks, work);
}

TEST(OrderBounds, NoneIsAboveTheBestPeak) {
  std::size_t tried = 0;
  std::vector<std::size_t> tight(peak_bounds().size());
  for_each_small(4000, [&](const Tasks& tasks) {
    ++tried;
    const std::int64_t best = best_peak(tasks);
    std::int64_t cheaper = 0;
    for (std::size_t i = 0; i < tight.size(); ++i) {
      const std::int64_t bytes = run(peak_bounds()[i].run, tasks);
      ASSERT_LE(bytes, best) << peak_bounds()[i].known_as.name;
      tight[i] += bytes == best ? 1 : 0;
      if (peak_bounds()[i].run == either_first) continue;
      ASSERT_GE(bytes, cheaper) << peak_bounds()[i].known_as.name;
      cheaper = bytes;
    }
  });
  for (std::size_t i = 0; i < tight.size(); ++i) {
    RecordProperty("percent_tight_" + std::string(peak_bounds()[i].known_as.name),
                   std::to_string(100 * tight[i] / tried));
  }
  EXPECT_GT(tried, 3000u);
  EXPECT_GT(tight[1], tight[0]);
  EXPECT_GT(tight[2], tight[1]);
  EXPECT_GT(tight[2], tried * 85 / 100);
}

TEST(OrderBounds, WorkThatEndsEarlyLeavesABound) {
  for_each_small(200, [](const Tasks& tasks) {
    for (const PeakBound& bound : peak_bounds()) {
      std::int64_t before = 0;
      for (std::uint64_t steps = 0; steps < 12'000; steps += 200) {
        Work work(steps);
        const std::int64_t bytes = bound.run(tasks, work);
        ASSERT_GE(bytes, before) << bound.known_as.name << " with " << steps;
        before = bytes;
      }
      ASSERT_LE(before, best_peak(tasks)) << bound.known_as.name;
    }
  });
}

// Two ops make 100 bytes each for a third, from 8 and 20 bytes: the better is last that reads 8. What one op needs, or
// must be alive anywhere, is less.
TEST(EitherFirst, OneOfTwoRunsWhileTheOtherIsHeld) {
  GraphBuilder builder;
  std::vector<ValueId> made;
  for (const std::uint64_t source : {8, 20}) {
    const BufferId from = unwrap(builder.add_buffer({.size = Bytes(source)}));
    const BufferId to = unwrap(builder.add_buffer({.size = Bytes(100)}));
    unwrap(builder.add_op({.name = "source", .writes = {from}}));
    unwrap(builder.add_op({.name = "make", .reads = {unwrap(builder.add_value(from, "u8", {}))}, .writes = {to}}));
    made.push_back(unwrap(builder.add_value(to, "u8", {})));
  }
  unwrap(builder.add_op({.name = "join", .reads = made}));
  const Tasks tasks = to_tasks(unwrap(std::move(builder).build()));
  EXPECT_EQ(run(min_cut, tasks), 200);
  EXPECT_EQ(run(either_first, tasks), 208);
  EXPECT_EQ(best_peak(tasks), 208);
}

TEST(OrderBounds, AreKnownByName) {
  ASSERT_EQ(order_bounds().size(), peak_bounds().size());
  for (std::size_t i = 0; i < order_bounds().size(); ++i) {
    EXPECT_EQ(order_bounds()[i].name, peak_bounds()[i].known_as.name);
  }
}

TEST(OrderBounds, NoTasks) {
  const Tasks none = to_tasks(unwrap(GraphBuilder().build()));
  for (const PeakBound& bound : peak_bounds()) EXPECT_EQ(run(bound.run, none), 0) << bound.known_as.name;
}

// By the definition, one question for each task and each use.
void expect_alive_as_defined(const Tasks& tasks) {
  const Reachability reachability(tasks.needs);
  const auto up_to = [&](std::size_t a, std::size_t b) { return a == b || reachability.precedes(OpId(a), OpId(b)); };
  Work work = Work::unlimited();
  const std::vector<std::int64_t> by_task = must_be_alive_by_task(tasks, work);
  for (Task task = 0; task < tasks.count(); ++task) {
    std::int64_t bytes = tasks.workspace[task];
    for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
      const std::span<const Task> users = tasks.users[buffer];
      const bool used =
          tasks.kept[buffer] || std::any_of(users.begin(), users.end(), [&](Task user) { return up_to(task, user); });
      if (used && up_to(users.front(), task)) bytes += tasks.size[buffer];
    }
    bytes -= reused(tasks, task, [&](Held buffer) {
      const std::span<const Task> users = tasks.users[buffer];
      return !tasks.kept[buffer] &&
             std::none_of(users.begin(), users.end(), [&](Task user) { return user != task && up_to(task, user); });
    });
    ASSERT_EQ(by_task[task], bytes) << "task " << task;
  }
  EXPECT_EQ(run(must_be_alive, tasks), *std::max_element(by_task.begin(), by_task.end()));
}

TEST(MustBeAlive, IsAsDefined) {
  for_each_small(500, expect_alive_as_defined);
}

// Three blocks, the last of them not full.
TEST(MustBeAlive, IsAsDefinedForATrainingStep) {
  expect_alive_as_defined(to_tasks(training_graph(1300)));
}

TEST(MustBeAlive, WithLittleWorkSomeTasksHaveTheirOperandsAlone) {
  const Tasks tasks = to_tasks(training_graph(1300));
  constexpr std::uint64_t kEnough = 1'000'000'000;
  Work enough(kEnough);
  const std::vector<std::int64_t> all = must_be_alive_by_task(tasks, enough);
  Work little((kEnough - enough.left()) / 2);  // for one block of the three
  const std::vector<std::int64_t> some = must_be_alive_by_task(tasks, little);
  EXPECT_EQ(std::vector(some.begin(), some.begin() + 512), std::vector(all.begin(), all.begin() + 512));
  for (std::size_t task = 512; task < all.size(); ++task) ASSERT_LE(some[task], all[task]) << "task " << task;
  EXPECT_NE(some, all);
}

// The picture of min_cut.h; t has a workspace of 200 bytes, so that it is what counts.
TEST(MinCut, Either) {
  GraphBuilder builder;
  const auto make = [&](std::size_t size, std::string_view name) {
    return unwrap(builder.add_buffer({.size = Bytes(size), .name = name}));
  };
  const BufferId x = make(100, "x");
  const BufferId y = make(60, "y");
  const BufferId z = make(1, "z");
  unwrap(builder.add_op({.name = "make", .writes = {x}}));
  unwrap(builder.add_op({.name = "f", .reads = {unwrap(builder.add_value(x, "f", {}))}, .writes = {y}}));
  unwrap(builder.add_op({.name = "t", .workspace = Bytes(200)}));
  unwrap(builder.add_op({.name = "g", .reads = {unwrap(builder.add_value(y, "f", {}))}, .writes = {z}}));
  unwrap(builder.add_edge(OpId(0), OpId(2)));
  unwrap(builder.add_edge(OpId(2), OpId(3)));
  const Tasks tasks = to_tasks(unwrap(std::move(builder).build()));
  EXPECT_EQ(run(operands, tasks), 200);
  EXPECT_EQ(run(must_be_alive, tasks), 200);
  EXPECT_EQ(run(min_cut, tasks), 260);
  EXPECT_EQ(best_peak(tasks), 260);
  Work work = Work::unlimited();
  EXPECT_THAT(min_cut_at(tasks, 2, work).before, ::testing::ElementsAre(true, true, false, false));
}

TEST(MinCut, IsTheLeastThatAnyOrderHolds) {
  for_each_small(2000, [](const Tasks& tasks) {
    const std::vector<std::int64_t> least = least_held(tasks);
    bool may_choose_any = false;
    for (Task task = 0; task < tasks.count(); ++task) {
      Work work = Work::unlimited();
      const LeastHeld found = min_cut_at(tasks, task, work);
      ASSERT_TRUE(found.exact);
      // If a result may be made over one of several operands, the bound does not ask which.
      const std::span<const TaskReuse> reuses = tasks.reuses[task];
      const bool may_choose =
          std::adjacent_find(reuses.begin(), reuses.end(),
                             [](const TaskReuse& a, const TaskReuse& b) { return a.to == b.to; }) != reuses.end();
      ASSERT_LE(found.bytes, least[task]) << "task " << task;
      may_choose_any |= may_choose;
      if (may_choose) continue;
      ASSERT_EQ(found.bytes, least[task]) << "task " << task;
      // An order that holds just that: what has run before it, the task, the rest.
      Order order = first_to_last(tasks.count());
      std::stable_partition(order.begin(), order.end(), [&](OpId op) { return op.index() == task; });
      std::stable_partition(order.begin(), order.end(), [&](OpId op) { return found.before[op.index()]; });
      ASSERT_EQ(held_while(tasks, order)[task], least[task]) << "task " << task;
    }
    if (may_choose_any) return;
    ASSERT_EQ(run(min_cut, tasks), *std::max_element(least.begin(), least.end()));
  });
}

TEST(MinCut, DoesNotDependOnTheOrderItStartsFrom) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const Tasks tasks = to_tasks(graph);
    Work work = Work::unlimited();
    ASSERT_EQ(min_cut_from(tasks, random_order(graph, random), work), run(min_cut, tasks)) << "seed " << seed;
  }
}

// Two chains between the first task and the last, too deep for recursion. While a task of one runs, some buffer of the
// other is held: the smallest is that of step `kDepth / 2`, with 10 bytes.
TEST(MinCut, DeepChains) {
  constexpr std::size_t kDepth = 100'000;
  GraphBuilder builder;
  const auto add = [&](std::size_t size, std::vector<BufferId> from) {
    const BufferId made = unwrap(builder.add_buffer({.size = Bytes(size), .name = "made"}));
    OpSpec op{.name = "op", .writes = {made}};
    for (const BufferId read : from) op.reads.push_back(unwrap(builder.add_value(read, "f", {})));
    unwrap(builder.add_op(op));
    return made;
  };
  const BufferId start = add(1000, {});
  BufferId one = start;
  BufferId other = start;
  for (std::size_t i = 1; i <= kDepth; ++i) {
    one = add(i == kDepth / 2 ? 500 : 100, {one});            // op 2 * i - 1
    other = add(i == kDepth / 2 ? 10 : 20 + i % 7, {other});  // op 2 * i
  }
  add(1, {one, other});
  const Tasks tasks = to_tasks(unwrap(std::move(builder).build()));
  Work work = Work::unlimited();
  // 500 and the 100 it is made from, and 10 of the other chain.
  EXPECT_EQ(min_cut_at(tasks, kDepth - 1, work).bytes, 610);
  EXPECT_EQ(min_cut_at(tasks, 2 * kDepth, work).bytes, 20 + kDepth % 7 + 20 + (kDepth - 1) % 7 + 100);
}

// The picture of max_flow.h: nodes source, sink, a, b.
TEST(MaxFlow, Fork) {
  Network network{.nodes = 4, .arcs = {{0, 2, 3}, {2, 1, 2}, {2, 3, 5}, {3, 1, 1}}};
  Work work = Work::unlimited();
  const Flow flow = max_flow(network, 0, 1, work);
  EXPECT_EQ(flow.amount, 3);
  EXPECT_TRUE(flow.most);
}

// What the cheapest of all cuts costs; kUnlimited if none is without unlimited arcs.
std::int64_t cheapest_cut(const Network& network, std::vector<bool>& widest) {
  std::int64_t cheapest = Network::kUnlimited;
  std::size_t size = 0;
  for (std::uint32_t set = 0; set < 1u << network.nodes; ++set) {
    if ((set & 3) != 1) continue;  // node 0, but not node 1
    std::int64_t cost = 0;
    for (const Network::Arc& arc : network.arcs) {
      const bool cut = (set >> arc.from & 1) != 0 && (set >> arc.to & 1) == 0;
      if (!cut || cost == Network::kUnlimited) continue;
      cost = arc.capacity == Network::kUnlimited ? arc.capacity : cost + arc.capacity;
    }
    const auto members = static_cast<std::size_t>(std::popcount(set));
    if (cost > cheapest || (cost == cheapest && members < size)) continue;
    cheapest = cost;
    size = members;
    for (Network::Node node = 0; node < network.nodes; ++node) widest[node] = (set >> node & 1) != 0;
  }
  return cheapest;
}

TEST(MaxFlow, IsTheCheapestOfAllCuts) {
  std::size_t unlimited = 0;
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    std::mt19937_64 random(seed);
    Network network{.nodes = static_cast<Network::Node>(2 + random() % 6)};
    const auto node = [&] { return static_cast<Network::Node>(random() % network.nodes); };
    for (std::size_t i = random() % 16; i > 0; --i) {
      const bool limited = random() % 4 != 0;
      network.add_arc(node(), node(), limited ? static_cast<std::int64_t>(random() % 9) : Network::kUnlimited);
    }
    std::vector<bool> widest(network.nodes);
    const std::int64_t expected = cheapest_cut(network, widest);
    Work work = Work::unlimited();
    const Flow flow = max_flow(network, 0, 1, work);
    ASSERT_EQ(flow.amount, expected) << "seed " << seed;
    if (expected == Network::kUnlimited) {
      ++unlimited;
      continue;
    }
    ASSERT_TRUE(flow.most) << "seed " << seed;
    ASSERT_EQ(flow.near_source, widest) << "seed " << seed;
    for (std::uint64_t steps = 0; steps < 1000; steps += 100) {
      Work little(steps);
      const Flow some = max_flow(network, 0, 1, little);
      ASSERT_LE(some.amount, expected) << "seed " << seed;
      ASSERT_TRUE(!some.most || some.amount == expected) << "seed " << seed;
    }
  }
  EXPECT_GT(unlimited, 100u);
  EXPECT_LT(unlimited, 2500u);
}

}  // namespace
}  // namespace lowtide
