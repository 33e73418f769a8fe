// The orders that others are compared with: each on a step whose order is known, and all of them on random graphs.
#include <random>
#include <string>

#include "expect_order.h"
#include "gmock/gmock.h"
#include "graph/dependencies.h"
#include "gtest/gtest.h"
#include "lowtide/order.h"
#include "makers.h"
#include "order/update_branches.h"
#include "order_by.h"
#include "random_graph.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using testing::ElementsAre;

std::vector<std::size_t> ops_by(std::string_view name, const Graph& graph) {
  std::vector<std::size_t> ops;
  for (const OpId op : order_by(name, graph)) ops.push_back(op.index());
  return ops;
}

// Bytes touched: 0: 50, 1: 10, 2: 53, 3: 12, 4: 6. Lightest first: 4, but it needs 2 (which needs 0) and 3 (which needs
// 1), and 3 is the lighter one.
TEST(OrderBaselines, DepthFirst) {
  const std::vector<Maker> makers = {{50}, {10}, {3, {0}}, {2, {1}}, {1, {2, 3}}};
  EXPECT_THAT(ops_by("dfs", graph_of(makers)), ElementsAre(1, 3, 0, 2, 4));
}

// When 0 and 1 have run, at steps 0 and 1, the steps of what 4 needs are 0, of 3 they are 0 and 1, of 2 they are 1.
TEST(OrderBaselines, BreadthFirst) {
  const std::vector<Maker> makers = {{1}, {1}, {1, {1}}, {1, {0, 1}}, {1, {0}}, {1, {3}}};
  EXPECT_THAT(ops_by("bfs", graph_of(makers)), ElementsAre(0, 1, 4, 3, 2, 5));
}

// 0 and 1 raise the peak, 1 less: to 60. So do 0 and 2, 2 less: to 70; it leaves 10 of them. 3 and 4 raise it no more:
// 3 leaves 4, 4 leaves 5, though 3 needs 54 while it runs and 4 only 5. What comes behind them leaves nothing; 0 is
// last.
TEST(OrderBaselines, LeastPeakMemoryFirst) {
  const std::vector<Maker> makers = {{100}, {60}, {10, {1}}, {4, {2}, 50}, {5, {2}}, {1, {0}}, {1, {3, 4}}};
  EXPECT_THAT(ops_by("lpmf", graph_of(makers)), ElementsAre(1, 2, 3, 4, 6, 0, 5));
}

// 0 and 1 leave 4 more each, and what they hold while they run is not looked at: 0 first, its workspace of 100 or not.
// `least_change` takes 1.
TEST(OrderBaselines, LesceaSeesTheFinishedStateAlone) {
  const std::vector<Maker> makers = {{4, {}, 100}, {4}, {1, {0}}, {1, {1}}};
  EXPECT_THAT(ops_by("lescea", graph_of(makers)), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(ops_by("least_change", graph_of(makers)), ElementsAre(1, 3, 0, 2));
}

// Two weights. Backward: the gradient of the second, then of what is before, then of the first. Adam-like updates at
// the end, each with a buffer of its own between state and weight, and a counter of steps for both.
class TwoWeights {
 public:
  TwoWeights() {
    for (BufferId* state : {&w1_, &w2_, &v1_, &v2_}) *state = resident(Role::parameter);
    count_ = resident(Role::optimizer_state);
    running_ = resident(Role::buffer);
  }

  Graph build() {
    const BufferId h = make({w1_}, {running_});  // 0: forward, with running statistics
    const BufferId y = make({h, w2_});           // 1: forward
    const BufferId dw2 = make({h, y});           // 2
    const BufferId dh = make({y, w2_});          // 3: the second weight may change only after this
    const BufferId dw1 = make({dh});             // 4
    run({}, {count_});                           // 5: counts the step
    update(dw1, v1_, w1_);                       // 6, 7, 8
    update(dw2, v2_, w2_);                       // 9, 10, 11
    return unwrap(std::move(builder_).build());
  }

 private:
  BufferId resident(Role role) {
    return unwrap(
        builder_.add_buffer({.size = Bytes(64), .residence = Residence::resident, .role = role, .initial = true}));
  }
  void run(const std::vector<BufferId>& reads, const std::vector<BufferId>& writes) {
    OpSpec op{.name = "op", .writes = writes};
    for (const BufferId read : reads) op.reads.push_back(unwrap(builder_.add_value(read, "uint8", {})));
    unwrap(builder_.add_op(op));
  }
  BufferId make(const std::vector<BufferId>& reads, std::vector<BufferId> changes = {}) {
    const BufferId made = unwrap(builder_.add_buffer({.size = Bytes(64)}));
    changes.push_back(made);
    run(reads, changes);
    return made;
  }
  void update(BufferId gradient, BufferId state, BufferId weight) {
    run({gradient, count_}, {state});
    const BufferId root = make({state});
    run({root}, {weight});
  }

  GraphBuilder builder_;
  BufferId w1_, w2_, v1_, v2_, count_, running_;
};

Graph decayed_weight() {
  GraphBuilder builder;
  const BufferId weight = unwrap(builder.add_buffer(
      {.size = Bytes(64), .residence = Residence::resident, .role = Role::parameter, .initial = true}));
  const auto run = [&](const std::vector<BufferId>& reads, const std::vector<BufferId>& writes) {
    OpSpec op{.name = "op", .writes = writes};
    for (const BufferId read : reads) op.reads.push_back(unwrap(builder.add_value(read, "uint8", {})));
    unwrap(builder.add_op(op));
  };
  const auto make = [&](const std::vector<BufferId>& reads) {
    const BufferId made = unwrap(builder.add_buffer({.size = Bytes(64)}));
    run(reads, {made});
    return made;
  };
  const BufferId h = make({weight});  // 0: forward
  run({}, {weight});                  // 1: decay
  const BufferId dh = make({h});      // 2: backward
  const BufferId dw = make({dh, h});  // 3
  run({dw}, {weight});                // 4
  return unwrap(std::move(builder).build());
}

TEST(OrderBaselines, UpdatesAreTheirBranches) {
  const Graph graph = TwoWeights().build();
  const UpdateBranches found = update_branches(graph, to_tasks(graph));
  ASSERT_EQ(found.branches.size(), 3u);
  EXPECT_THAT(found.branches[0], ElementsAre(5));
  EXPECT_THAT(found.branches[1], ElementsAre(6, 7, 8));
  EXPECT_THAT(found.branches[2], ElementsAre(9, 10, 11));
  for (Task task = 0; task < 5; ++task) EXPECT_FALSE(found.in_update[task]) << task;
}

TEST(OrderBaselines, UpdatesAsSoonAsTheyCanRun) {
  EXPECT_THAT(ops_by("early_updates", TwoWeights().build()), ElementsAre(0, 1, 2, 5, 9, 10, 3, 11, 4, 6, 7, 8));
}

// Nothing reads the weight behind the forward pass; if it changed there, its reader could not run again.
TEST(OrderBaselines, DecayOfAWeightWaitsForTheGradient) {
  const Graph graph = decayed_weight();
  EXPECT_THAT(ops_by("early_updates", graph), ElementsAre(0, 2, 3, 1, 4));
  const Order decay_first = {OpId(0), OpId(1), OpId(2), OpId(3), OpId(4)};
  EXPECT_THAT(late_decay_order(graph, to_tasks(graph), decay_first),
              ElementsAre(OpId(0), OpId(2), OpId(3), OpId(1), OpId(4)));
}

// From an order in which updates come early, as branches come there.
TEST(OrderBaselines, UpdatesBehindAllOthers) {
  const Graph graph = TwoWeights().build();
  const Tasks tasks = to_tasks(graph);
  std::vector<std::size_t> ops;
  for (const OpId op : late_updates_order(graph, tasks, order_by("early_updates", graph))) ops.push_back(op.index());
  EXPECT_THAT(ops, ElementsAre(0, 1, 2, 3, 4, 5, 9, 10, 11, 6, 7, 8));
}

TEST(OrderBaselines, LateUpdatesAreAnOrder) {
  for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const Tasks tasks = to_tasks(graph);
    const Order late = late_updates_order(graph, tasks, random_order(graph, random));
    expect_order(tasks, late, std::to_string(seed));
    const std::vector<bool> in_update = update_branches(graph, tasks).in_update;
    EXPECT_TRUE(std::ranges::is_partitioned(late, [&](OpId op) { return !in_update[op.index()]; })) << seed;
  }
}

// One branch for each parameter and one for the counter of steps, and all of them behind the backward pass.
TEST(OrderBaselines, UpdatesOfATrainingStep) {
  constexpr std::size_t kLayers = 20;
  const Graph graph = training_graph(3 + 19 * kLayers);
  const UpdateBranches found = update_branches(graph, to_tasks(graph));
  EXPECT_EQ(found.branches.size(), 1 + 5 * kLayers);
  EXPECT_EQ(found.branches.num_items(), 1 + 5 * kLayers);
  for (std::size_t task = graph.num_ops() - found.branches.num_items(); task < graph.num_ops(); ++task) {
    EXPECT_TRUE(found.in_update[task]) << task;
  }
}

TEST(OrderBaselines, NothingNeedsAnUpdateButUpdates) {
  std::size_t updates = 0;
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const Tasks tasks = to_tasks(graph);
    const UpdateBranches found = update_branches(graph, tasks);
    updates += found.branches.num_items();
    for (Task task = 0; task < tasks.count(); ++task) {
      if (!found.in_update[task]) continue;
      for (const OpId behind : tasks.needs.successors[task]) ASSERT_TRUE(found.in_update[behind.index()]) << seed;
    }
  }
  EXPECT_GT(updates, 1'000u) << "random graphs have no updates";
}

TEST(OrderBaselines, AreOrders) {
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = seed == 0 ? training_graph(400) : random_graph(random);
    const Dependencies needs = dependencies(graph);
    for (const std::string_view name : {"lescea", "dfs", "bfs", "lpmf", "early_updates"}) {
      std::vector<bool> run(graph.num_ops());
      std::size_t count = 0;
      for (const std::size_t op : ops_by(name, graph)) {
        for (const OpId need : needs.predecessors[op]) ASSERT_TRUE(run[need.index()]) << name << ", seed " << seed;
        ASSERT_FALSE(run[op]) << name << ", seed " << seed;
        run[op] = true;
        ++count;
      }
      ASSERT_EQ(count, graph.num_ops()) << name << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace lowtide
