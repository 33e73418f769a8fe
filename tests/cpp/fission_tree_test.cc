#include "fission/fission_tree.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/plan.h"
#include "lowtide/verify.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A net of three layers by rows, forward and back; what each layer saves is read by its own backward op.
//
//   forward   f0 -> f1 -> f2 -> loss         makes a0, a1, a2, y; the loss keeps rows apart
//   backward  b2 -> b1 -> b0                 b2 reads g and a2; each makes a gradient and adds up that of a weight
class Net {
 public:
  static constexpr Bytes kRows{1024};

  // Of as many layers; each op takes 100, and a part of it, whatever their number, so long.
  explicit Net(std::size_t layers = 3, Nanos part = Nanos(60)) : part_(part) {
    std::vector<BufferId> a = {
        unwrap(builder_.add_buffer({.size = kRows, .residence = Residence::resident, .name = "x", .initial = true}))};
    for (std::size_t i = 0; i < layers; ++i) a.push_back(add("f" + std::to_string(i), {a.back()}));
    BufferId g = add("loss", {a.back()}), above = g;
    for (std::size_t i = layers; i-- > 0;) {
      above = g;
      g = add("b" + std::to_string(i), {g, a[i + 1]});
    }
    add_sum("w0", {above, a[1]});
  }

  Graph graph() && { return unwrap(std::move(builder_).build()); }

 private:
  OpId add_op(std::string_view name, const std::vector<BufferId>& reads, BufferId made, Bytes period) {
    OpSpec spec{.name = name, .writes = {made}, .cost = Nanos(100)};
    AxisSpec rows{.writes = {period}};
    for (const BufferId read : reads) {
      spec.reads.push_back(unwrap(builder_.add_value(read, "u8", {})));
      rows.reads.push_back(kRows);
    }
    const OpId op = unwrap(builder_.add_op(spec));
    for (const std::uint32_t count : {2, 4}) rows.counts.push_back({count, {}, part_, period > Bytes(0)});
    EXPECT_TRUE(builder_.add_axis(op, rows).ok());
    return op;
  }

  BufferId add(std::string_view name, const std::vector<BufferId>& reads) {
    const BufferId made = unwrap(builder_.add_buffer({.size = kRows, .name = name}));
    add_op(name, reads, made, kRows);
    return made;
  }

  void add_sum(std::string_view name, const std::vector<BufferId>& reads) {
    const BufferId made = unwrap(builder_.add_buffer({.size = Bytes(64), .name = name}));
    add_op(name, reads, made, Bytes(0));
    EXPECT_TRUE(builder_.keep(made).ok());
  }

  GraphBuilder builder_;
  Nanos part_;
};

std::vector<std::string> names(const Graph& graph, const std::vector<CutOp>& ops) {
  std::vector<std::string> names;
  for (const CutOp& one : ops) names.emplace_back(graph.op(one.op).name);
  return names;
}

std::vector<bool> hot(const Graph& graph, const std::vector<std::string>& which) {
  std::vector<bool> hot(graph.num_buffers());
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    hot[id.index()] = std::ranges::count(which, graph.buffer(id).name) > 0;
  }
  return hot;
}

TEST(FissionTree, OneDimensionRunsThroughAll) {
  const Graph graph = Net().graph();
  const std::vector<Dimension> found = dimensions_of(Operands(graph), false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front().size(), graph.num_ops()) << "the sum too: nobody reads it";
  const std::vector<Dimension> exact = dimensions_of(Operands(graph), true);
  ASSERT_EQ(exact.size(), 1u);
  EXPECT_EQ(exact.front().size(), graph.num_ops() - 1);
}

TEST(FissionTree, RegionsAreWhatOneOpDominates) {
  const Graph graph = Net().graph();
  const FissionTree tree(graph, false);
  // Node i is op i - 1: below f1 lie those behind it whose saved results are its own or later.
  EXPECT_THAT(names(graph, tree.ops({0, 2})), ElementsAre("f2", "loss", "b2", "b1"));
  EXPECT_THAT(names(graph, tree.ops({0, 3})), ElementsAre("loss", "b2"));
  EXPECT_EQ(tree.ops({0, 0}).size(), graph.num_ops());
  EXPECT_THAT(tree.counts(tree.ops({0, 0})), ElementsAre(2, 4));
}

TEST(FissionTree, TheWidestRegionIsAllOfADimension) {
  const Graph graph = Net().graph();
  EXPECT_EQ(FissionTree(graph, false).widest(), (RegionName{0, 0}));
  GraphBuilder plain;
  unwrap(plain.add_op({.name = "no axes", .writes = {unwrap(plain.add_buffer({.size = Bytes(64)}))}}));
  EXPECT_EQ(FissionTree(unwrap(std::move(plain).build()), false).widest(), std::nullopt);
}

// Halves of all that is there take 4 % more time; nothing that runs again saves as much for so little.
TEST(FissionTree, StepsRunInMicroBatches) {
  const Graph graph = Net(24, Nanos(52)).graph();
  const Plan once = unwrap(plan(graph));
  const Nanos most(once.time.count() * 105 / 100);
  const Plan whole = unwrap(plan(graph, {.parts = Parts::none, .latency_budget = most}));
  const Plan halved = unwrap(plan(graph, {.parts = Parts::any, .latency_budget = most}));
  EXPECT_LE(halved.time, most);
  EXPECT_LE(halved.arena, Bytes(once.arena.count() * 6 / 10));
  EXPECT_LT(halved.arena, Bytes(whole.arena.count() * 7 / 10));
  EXPECT_EQ(halved.order.size(), 2 * graph.num_ops());
  EXPECT_TRUE(verify(graph, halved).ok());
}

TEST(FissionTree, SmallestRegionsOfEachLevelNest) {
  const Graph graph = Net().graph();
  const FissionTree tree(graph, false);
  const auto all = [](RegionName) { return true; };
  const std::vector<bool> saved = hot(graph, {"f0", "f1", "f2", "loss"});
  const std::vector<FissionCandidate> found = tree.candidates(saved, 4, all);
  ASSERT_GE(found.size(), 2u);
  for (const FissionCandidate& candidate : found) {
    EXPECT_GT(candidate.score, 0);
    if (!candidate.parent) continue;
    const FissionCandidate& parent = found[*candidate.parent];
    EXPECT_FALSE(parent.is_leaf);
    const std::vector<CutOp> inner = tree.ops(candidate.name), outer = tree.ops(parent.name);
    EXPECT_GT(outer.size(), inner.size());
    for (const CutOp& one : inner) EXPECT_EQ(std::ranges::count(outer, one), 1);
  }
  EXPECT_EQ(std::ranges::count_if(found, [](const FissionCandidate& one) { return !one.parent; }), 1);
  EXPECT_THAT(tree.candidates(hot(graph, {}), 4, all), IsEmpty()) << "nothing to gain";
  EXPECT_THAT(tree.candidates(saved, 4, [](RegionName) { return false; }), IsEmpty());
}

// The whole step makes all that is hot, and reads nothing that is planned: half of that is its score.
TEST(FissionTree, ScoresAreHalfOfWhatIsHotLessWhatIsRead) {
  const Graph graph = Net().graph();
  const FissionTree tree(graph, false);
  const auto all = [](RegionName) { return true; };
  int whole = 0;
  for (const FissionCandidate& candidate : tree.candidates(hot(graph, {"f2", "loss"}), 8, all)) {
    if (candidate.name.top != 0) continue;
    EXPECT_EQ(candidate.score, 1024);
    ++whole;
  }
  EXPECT_EQ(whole, 0) << "what f0 dominates has the same score, and is smaller";
}

}  // namespace
}  // namespace lowtide
