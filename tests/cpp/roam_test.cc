// ROAM: where it cuts, where it puts weight updates, which parts it lays out together, and that all of it is right.
//
//   LOWTIDE_FULL=1   20,000 random graphs instead of 2,000
#include "published/roam/roam.h"

#include <tbb/global_control.h>

#include <random>
#include <string>

#include "best_order.h"
#include "expect_order.h"
#include "full_size.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/lifetimes.h"
#include "lowtide/plan.h"
#include "lowtide/published.h"
#include "lowtide/verify.h"
#include "makers.h"
#include "order/algorithms.h"
#include "plan/items.h"
#include "published/roam/roam_layout.h"
#include "published/roam/segment.h"
#include "random_graph.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kPlenty = 4'000'000'000;

Waists waists_of(const Graph& graph) {
  const Tasks tasks = to_tasks(graph);
  return find_waists(graph, tasks, update_branches(graph, tasks));
}

TEST(Waists, Diamond) {
  const Waists found = waists_of(graph_of(std::vector<Maker>{{8}, {8, {0}}, {8, {0}}, {8, {1, 2}}, {8, {3}}}));
  EXPECT_THAT(found.tasks, ElementsAre(0, 3, 4));
  EXPECT_THAT(found.segment, ElementsAre(0, 1, 1, 1, 2));
  EXPECT_THAT(found.earliest, ElementsAre(0, 1, 1, 3, 4));
  EXPECT_THAT(found.latest, ElementsAre(0, 2, 2, 3, 4));
}

// 2 is drawn without a look at anything, and 3 needs it: it runs right before that, behind 1.
TEST(Waists, WhatFeedsTheRestIsNotInTheWay) {
  const Waists found = waists_of(graph_of(std::vector<Maker>{{8}, {8, {0}}, {8}, {8, {1, 2}}, {8, {3}}}));
  EXPECT_THAT(found.tasks, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(found.segment, ElementsAre(0, 1, 2, 3, 4));
}

// A chain of layers, each with a weight and the momentum of its gradient. `activation` and `weight` in bytes.
//
//   forward    h[i] = f(h[i - 1], w[i])
//   backward   g[i] = b(g[i + 1], h[i - 1], w[i])       the last g of the loss, from the last h
//              d[i] = m(g[i + 1], h[i - 1])             the gradient of w[i]
//   updates    t[i] = u(d[i], v[i]), w[i] += t[i]       all of them at the end, the first layer's first; or fused, with
//                                                       no buffer for t[i]
struct Chain {
  std::size_t layers;
  std::uint64_t activation = 64;
  std::uint64_t weight = 64;
  bool fused = false;
};

Graph train(const Chain& chain) {
  GraphBuilder builder;
  const auto resident = [&](Role role) {
    return unwrap(
        builder.add_buffer({.size = Bytes(64), .residence = Residence::resident, .role = role, .initial = true}));
  };
  const auto run = [&](const std::vector<BufferId>& reads, const std::vector<BufferId>& writes) {
    OpSpec op{.name = "op", .writes = writes};
    for (const BufferId read : reads) op.reads.push_back(unwrap(builder.add_value(read, "uint8", {})));
    unwrap(builder.add_op(op));
  };
  const auto make = [&](std::uint64_t size, const std::vector<BufferId>& reads) {
    const BufferId made = unwrap(builder.add_buffer({.size = Bytes(size)}));
    run(reads, {made});
    return made;
  };
  std::vector<BufferId> weights;
  std::vector<BufferId> states;
  std::vector<BufferId> h = {resident(Role::input)};
  for (std::size_t i = 0; i < chain.layers; ++i) {
    weights.push_back(resident(Role::parameter));
    states.push_back(resident(Role::optimizer_state));
    h.push_back(make(chain.activation, {h.back(), weights.back()}));
  }
  BufferId g = make(chain.activation, {h.back()});
  std::vector<BufferId> gradients(chain.layers);
  for (std::size_t i = chain.layers; i-- > 0;) {
    gradients[i] = make(chain.weight, {g, h[i]});
    if (i > 0) g = make(chain.activation, {g, h[i], weights[i]});
  }
  for (std::size_t i = 0; i < chain.layers; ++i) {
    if (chain.fused) {
      run({gradients[i], states[i]}, {states[i], weights[i]});
      continue;
    }
    const BufferId step = unwrap(builder.add_buffer({.size = Bytes(chain.weight)}));
    run({gradients[i], states[i]}, {states[i], step});
    run({step}, {weights[i]});
  }
  return unwrap(std::move(builder).build());
}

// Three layers. Ops: 0 1 2 forward, 3 the loss' gradient, then 4 d3, 5 g2, 6 d2, 7 g1, 8 d1; updates 9 10, 11 12,
// 13 14. The gradients of weights serve one update each, and 7, behind which there is only the first update, does too.
TEST(Waists, OfATrainingStep) {
  const Graph graph = train({3});
  const Tasks tasks = to_tasks(graph);
  const UpdateBranches updates = update_branches(graph, tasks);
  ASSERT_EQ(updates.branches.size(), 3u);
  EXPECT_THAT(updates.branches[2], ElementsAre(13, 14));
  EXPECT_THAT(updates.gradient, ElementsAre(64, 64, 64));
  const Waists found = find_waists(graph, tasks, updates);
  EXPECT_THAT(found.tasks, ElementsAre(0, 1, 2, 3, 5, 7));
  // 4 needs 3, the waist before segment 4; its weight is read by 5, so the update ends in segment 5.
  EXPECT_THAT(found.segment, ElementsAre(0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 5, 6, 4, 5));
  const Turn turn = find_turn(tasks, updates, found);
  EXPECT_EQ(turn.segment, 2u);
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    EXPECT_EQ(turn.activation[buffer], tasks.users[buffer].front() < 3) << "of op " << tasks.users[buffer].front();
  }
}

// Its gradient and its own buffer: twice the gradient.
TEST(UpdateAssignment, AlphaIsThatOfTheOptimizer) {
  const Graph graph = train({3, 64, 128});
  const Tasks tasks = to_tasks(graph);
  EXPECT_DOUBLE_EQ(derive_alpha(tasks, update_branches(graph, tasks)), 2);
  const Graph none = graph_of(std::vector<Maker>{{8}, {8, {0}}});
  EXPECT_DOUBLE_EQ(derive_alpha(to_tasks(none), update_branches(none, to_tasks(none))), 0);
}

// Six layers, whose activations of 64 bytes are all held over the turn: 384. Once the gradient of the last weight is
// there, and the op that reads that weight has run, four of them may be alive: 256. With twice the gradient that is
// more than 384 if the gradient is larger than 64; and one more has gone with each segment.
TEST(UpdateAssignment, WaitsUntilActivationsHaveGone) {
  for (const auto& [weight, segments_later] : {std::pair(64u, 0u), std::pair(80u, 1u), std::pair(112u, 2u)}) {
    const Graph graph = train({6, 64, weight});
    const Tasks tasks = to_tasks(graph);
    const UpdateBranches updates = update_branches(graph, tasks);
    const Waists waists = find_waists(graph, tasks, updates);
    const Turn turn = find_turn(tasks, updates, waists);
    const std::vector<std::uint32_t> segment = assign_updates(tasks, updates, waists, turn, {.delay_radius = 0});
    const std::span<const Task> last = updates.branches[5];
    EXPECT_EQ(segment[last[1]], waists.segment[last[1]] + segments_later) << weight;
    // A radius above which no gradient is, or an alpha of nothing: nobody waits.
    EXPECT_EQ(assign_updates(tasks, updates, waists, turn, {.delay_radius = 1000}), waists.segment);
    EXPECT_EQ(assign_updates(tasks, updates, waists, turn, {.delay_radius = 0, .alpha = 0}), waists.segment);
  }
}

TEST(UpdateAssignment, WhatHasNoBufferOfItsOwnDoesNotWait) {
  const Graph graph = train({6, 64, 112, true});
  const Tasks tasks = to_tasks(graph);
  const UpdateBranches updates = update_branches(graph, tasks);
  ASSERT_EQ(updates.branches.size(), 6u);
  const Waists waists = find_waists(graph, tasks, updates);
  const Turn turn = find_turn(tasks, updates, waists);
  EXPECT_EQ(assign_updates(tasks, updates, waists, turn, {.delay_radius = 0, .alpha = 100}), waists.segment);
}

// What a segment holds is what the whole holds there, but for what none of its tasks touches.
TEST(Segments, TogetherAreTheWhole) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random).without_reuses();  // as the paper
    const Tasks tasks = to_tasks(graph);
    const Waists waists = find_waists(graph, tasks, update_branches(graph, tasks));
    std::vector<std::pair<std::size_t, Task>> pairs;
    for (Task task = 0; task < tasks.count(); ++task) pairs.emplace_back(waists.segment[task], task);
    const Lists<Task> members = Lists<Task>::group(waists.num_segments(), pairs);
    Order whole;
    std::vector<std::int64_t> held_alone(tasks.count());
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i].empty()) continue;
      const Segment segment(tasks, members[i], waists.segment);
      const Order order = first_to_last(members[i].size() + 1);
      const std::vector<std::int64_t> held = held_while(segment.problem(), order);
      for (std::size_t j = 0; j < members[i].size(); ++j) held_alone[members[i][j]] = held[j + 1];
      const Order own = segment.decode(order);
      whole.insert(whole.end(), own.begin(), own.end());
    }
    expect_order(tasks, whole, "seed " + std::to_string(seed));
    const std::vector<std::int64_t> held = held_while(tasks, whole);
    for (Task task = 0; task < tasks.count(); ++task) {
      std::int64_t passing = 0;
      for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
        bool before = false;
        bool here = false;
        bool after = tasks.kept[buffer];
        for (const Task user : tasks.users[buffer]) {
          before |= waists.segment[user] < waists.segment[task];
          here |= waists.segment[user] == waists.segment[task];
          after |= waists.segment[user] > waists.segment[task];
        }
        passing += before && after && !here ? tasks.size[buffer] : 0;
      }
      ASSERT_EQ(held[task], held_alone[task] + passing) << "seed " << seed << ", op " << task;
    }
  }
}

RoamOptions variant(std::uint64_t number) {
  RoamOptions options;
  options.cut_at_waists = number % 4 != 1;
  options.set_updates_aside = number % 4 != 2;
  options.assign_updates = number % 4 != 3;
  options.assignment.delay_radius = static_cast<double>(number % 3) / 2;
  options.threads = 1 + number % 3;
  return options;
}

TEST(Roam, OrdersAndLayoutsAreRight) {
  const std::uint64_t rounds = full_size() ? 20'000 : kSanitized ? 200 : 2'000;
  std::size_t cut = 0;
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    const std::string where = "seed " + std::to_string(seed);
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random).without_reuses();  // as the paper
    const Tasks tasks = to_tasks(graph);
    Work work(kPlenty);
    const RoamPlan made = unwrap(roam_plan(graph, {variant(seed), 1 + seed % 10}, work));
    expect_order(tasks, made.order.order, where);
    const Lifetimes lives = unwrap(lifetimes(graph, made.order.order));
    const Status verified = verify_layout(items_of(graph, made.order.order, lives), made.layout);
    ASSERT_TRUE(verified.ok()) << where << ": " << verified.error().message;
    cut += made.order.waists.tasks.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(cut, rounds / 4) << "nothing was cut";
}

// Without updates nothing is assigned, and the least peak of each segment is that of the whole.
TEST(Roam, TheLeastPeakWhereItOnlyCuts) {
  std::size_t better = 0;
  for (std::uint64_t seed = 0; seed < trials(300, 300); ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Maker> makers;
    for (std::size_t block = 0; block < 3; ++block) {  // a waist, four tasks behind it, and the next waist
      const std::size_t waist = makers.size();
      makers.push_back({1 + random() % 100});
      if (waist > 0) makers.back().reads = {waist - 1, waist - 2, waist - 3, waist - 4};
      for (std::size_t i = 0; i < 4; ++i) makers.push_back({1 + random() % 100, {waist}, random() % 100});
    }
    const Graph graph = graph_of(makers);
    const Tasks tasks = to_tasks(graph);
    for (const SegmentSolver solver : {SegmentSolver::search, SegmentSolver::program}) {
      if (solver == SegmentSolver::program && seed % 10 != 0) continue;
      for (const StepWidth width : {StepWidth::single, StepWidth::multi}) {
        Work work(1'000'000'000'000);
        const RoamOrder made = roam_order(graph, tasks, {.solver = solver, .width = width}, work);
        EXPECT_EQ(made.waists.tasks.size(), 3u);
        expect_order(tasks, made.order, "seed " + std::to_string(seed));
        ASSERT_EQ(peak_of(tasks, made.order), best_peak(tasks)) << "seed " << seed;
      }
    }
    better += best_peak(tasks) < peak_of(tasks, first_to_last(tasks.count())) ? 1 : 0;
  }
  EXPECT_GT(better, trials(300, 300) / 10) << "program order was good enough";
}

TEST(Roam, IsTheSameWithAnyNumberOfThreads) {
  const Graph graph = training_graph(1'000);
  const Tasks tasks = to_tasks(graph);
  const auto with = [&](std::size_t threads) {
    Work work(kPlenty);
    return unwrap(roam_plan(graph, {{.threads = threads}, 100}, work));
  };
  const tbb::global_control three(tbb::global_control::max_allowed_parallelism, 3);  // however few cores there are
  const RoamPlan alone = with(1);
  EXPECT_GT(alone.order.waists.tasks.size(), 100u);
  expect_order(tasks, alone.order.order, "one thread");
  for (const std::size_t threads : {std::size_t{2}, std::size_t{3}}) {
    const RoamPlan together = with(threads);
    EXPECT_EQ(together.order.order, alone.order.order) << threads;
    EXPECT_EQ(together.layout.offsets, alone.layout.offsets) << threads;
  }
}

TEST(Roam, OfTrainingSteps) {
  for (const std::size_t ops : {40, 200, 1'000}) {
    const Graph graph = training_graph(ops);
    Work work(kPlenty);
    const RoamPlan made = unwrap(roam_plan(graph, {}, work));
    expect_order(to_tasks(graph), made.order.order, std::to_string(ops));
    const Lifetimes lives = unwrap(lifetimes(graph, made.order.order));
    EXPECT_TRUE(verify_layout(items_of(graph, made.order.order, lives), made.layout).ok());
    EXPECT_LE(made.layout.arena.count(), lives.peak.count() * 11 / 10) << ops;
  }
}

TEST(Roam, ByNameInAPlan) {
  // 0 and 1 are large, 2 and 3 make little of them.
  const Graph graph = graph_of(std::vector<Maker>{{100}, {100}, {1, {0}}, {1, {1}}, {1, {2, 3}}});
  const Plan made = unwrap(plan(graph, {.order = "roam", .others = published()}));
  EXPECT_EQ(made.peak, Bytes(102));
  EXPECT_EQ(made.provenance.order, "roam");
}

TEST(Roam, NothingToOrder) {
  Work work(kPlenty);
  const RoamPlan made = unwrap(roam_plan(unwrap(GraphBuilder().build()), {}, work));
  EXPECT_THAT(made.order.order, IsEmpty());
  EXPECT_EQ(made.layout.arena, Bytes(0));
}

RoamTree tree_of(const Graph& graph, std::size_t node_limit) {
  const Tasks tasks = to_tasks(graph);
  Work work(kPlenty);
  return subgraph_tree(tasks, roam_order(graph, tasks, {}, work), node_limit);
}

// Ops 0 1 2 forward, each a waist; 3 uses what 2 made, 4 what 1 and 3 made, 5 what 0 and 4 made. The turn is behind 2.
TEST(RoamTree, ThreeRings) {
  const std::vector<Maker> makers = {{8}, {8, {0}}, {8, {1}}, {1, {2}}, {1, {3, 1}}, {1, {4, 0}}};
  const RoamTree tree = tree_of(graph_of(makers), 100);
  EXPECT_THAT(tree.ring, ElementsAre(2, 1, 0, 0, 1, 2, 3));  // the last segment is empty
  ASSERT_EQ(tree.subgraphs.size(), 4u);
  EXPECT_EQ(tree.subgraphs[1].rings, (Rings{1, 2}));
  EXPECT_THAT(tree.leaves(), ElementsAre(Rings{0, 1}, Rings{1, 2}, Rings{2, 3}, Rings{3, 4}));
}

// Beside 2 another op, 1, saves a little that is used last: ring 1 is not independent of ring 2. Of the 7 ops of the
// two, 5 are in ring 1.
TEST(RoamTree, WhatIsNotIndependentIsDividedAboveTheLimit) {
  const std::vector<Maker> makers = {{8},      {4, {0}},    {8, {0}},    {8, {1, 2}},   {8, {3}},
                                     {1, {4}}, {1, {5, 3}}, {1, {6, 2}}, {1, {7, 0, 1}}};
  const RoamTree whole = tree_of(graph_of(makers), 7);
  EXPECT_THAT(whole.ring, ElementsAre(2, 1, 0, 0, 1, 1, 2, 3));
  EXPECT_THAT(whole.leaves(), ElementsAre(Rings{0, 1}, Rings{1, 3}, Rings{3, 4}));
  const RoamTree divided = tree_of(graph_of(makers), 6);
  EXPECT_EQ(divided.ring, whole.ring);
  ASSERT_EQ(divided.subgraphs.size(), 3u);
  EXPECT_THAT(divided.subgraphs[1].parts, ElementsAre(Rings{1, 2}, Rings{2, 3}));
  EXPECT_THAT(divided.leaves(), ElementsAre(Rings{0, 1}, Rings{1, 2}, Rings{2, 3}, Rings{3, 4}));
}

}  // namespace
}  // namespace lowtide
