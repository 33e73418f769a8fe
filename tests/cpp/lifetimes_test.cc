#include "lowtide/lifetimes.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "random_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;

// The picture of lifetimes.h.
Graph staircase() {
  GraphBuilder builder;
  const BufferId a = unwrap(builder.add_buffer({.size = Bytes(100), .name = "a"}));
  const BufferId b = unwrap(builder.add_buffer({.size = Bytes(200), .name = "b"}));
  const BufferId c = unwrap(builder.add_buffer({.size = Bytes(50), .name = "c"}));
  unwrap(builder.add_op({.name = "make", .writes = {a}}));
  unwrap(builder.add_op({.name = "f", .reads = {unwrap(builder.add_value(a, "u8", {}))}, .writes = {b}}));
  unwrap(builder.add_op(
      {.name = "g", .reads = {unwrap(builder.add_value(b, "u8", {}))}, .writes = {c}, .workspace = Bytes(30)}));
  unwrap(builder.add_op({.name = "sync"}));
  unwrap(builder.keep(c));
  return unwrap(std::move(builder).build());
}

const std::vector<OpId> kFour = {OpId(0), OpId(1), OpId(2), OpId(3)};

TEST(Lifetimes, Staircase) {
  const Lifetimes found = unwrap(lifetimes(staircase(), kFour));
  EXPECT_THAT(found.lives, ElementsAre(Life{StepIndex(0), StepIndex(2)}, Life{StepIndex(1), StepIndex(3)},
                                       Life{StepIndex(2), StepIndex(4)}));
  EXPECT_THAT(found.live, ElementsAre(Bytes(100), Bytes(300), Bytes(280), Bytes(50)));
  EXPECT_EQ(found.peak, Bytes(300));
  EXPECT_EQ(found.peak_step, StepIndex(1));
}

TEST(OperandBound, Staircase) {
  EXPECT_EQ(operand_bound(staircase()), Bytes(300));
  EXPECT_EQ(operand_bound(unwrap(GraphBuilder().build())), Bytes(0));
}

// A buffer that is read twice and written counts once; resident ones do not count: 100 + workspace 30.
TEST(OperandBound, CountsEachPlannedBufferOnce) {
  GraphBuilder builder;
  const BufferId weight = unwrap(builder.add_buffer(
      {.size = Bytes(1000), .residence = Residence::resident, .role = Role::parameter, .name = "w", .initial = true}));
  const BufferId a = unwrap(builder.add_buffer({.size = Bytes(100), .name = "a"}));
  const ValueId w = unwrap(builder.add_value(weight, "u8", {}));
  unwrap(builder.add_op({.name = "make", .reads = {w}, .writes = {a}}));
  const ValueId one = unwrap(builder.add_value(a, "u8", {}));
  const ValueId two = unwrap(builder.add_value(a, "u8", {}));
  unwrap(builder.add_op({.name = "mul_", .reads = {one, two, w}, .writes = {a}, .workspace = Bytes(30)}));
  EXPECT_EQ(operand_bound(unwrap(std::move(builder).build())), Bytes(130));
}

TEST(OperandBound, NoOrderHasASmallerPeak) {
  std::size_t reached = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const Bytes peak = unwrap(lifetimes(graph, random_order(graph, random))).peak;
    EXPECT_LE(operand_bound(graph), peak) << "seed " << seed;
    reached += operand_bound(graph) == peak ? 1 : 0;
  }
  EXPECT_GT(reached, 0U);
}

TEST(Lifetimes, LargestFirst) {
  const Graph graph = staircase();
  const Lifetimes found = unwrap(lifetimes(graph, kFour));
  const auto names = [&](std::size_t step, std::size_t count) {
    std::vector<std::string> result;
    for (const Culprit& culprit : largest_at(graph, kFour, found, StepIndex(step), count))
      result.push_back(culprit.name);
    return result;
  };
  EXPECT_THAT(names(1, 9), ElementsAre("b", "a"));
  EXPECT_THAT(names(2, 9), ElementsAre("b", "c", "workspace of g"));
  EXPECT_THAT(names(2, 2), ElementsAre("b", "c"));
}

TEST(Lifetimes, RefusesWhatIsNoPermutation) {
  const Graph graph = staircase();
  const auto code = [&](std::vector<OpId> order) { return lifetimes(graph, order).error().code; };
  EXPECT_EQ(code({OpId(0), OpId(1), OpId(2)}), ErrorCode::op_missing);
  EXPECT_EQ(code({OpId(0), OpId(1), OpId(1), OpId(3)}), ErrorCode::op_repeated);
  EXPECT_EQ(code({OpId(0), OpId(1), OpId(2), OpId(4)}), ErrorCode::malformed_plan);
}

// Every buffer asked at every step.
TEST(Lifetimes, AgreesWithBruteForce) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const std::vector<OpId> order = random_order(graph, random);
    const Lifetimes found = unwrap(lifetimes(graph, order));
    Bytes peak;
    for (std::size_t step = 0; step < order.size(); ++step) {
      const Op op = graph.op(order[step]);
      Bytes live = op.workspace;
      const auto now = order.begin() + static_cast<std::ptrdiff_t>(step);
      const auto touches = [&](BufferId id) {
        return [&graph, id](OpId other) {
          const auto is_here = [&](VersionId version) { return graph.version(version).buffer == id; };
          return std::ranges::any_of(graph.op(other).writes, is_here) ||
                 std::ranges::any_of(graph.op(other).reads,
                                     [&](ValueId value) { return is_here(graph.value(value).version); });
        };
      };
      const auto needed_from = [&](BufferId id, auto first) {
        return graph.buffer(id).kept || std::any_of(first, order.end(), touches(id));
      };
      for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
        const bool begun = std::any_of(order.begin(), now + 1, touches(id));
        const bool over_another = std::ranges::any_of(
            op.reuses, [&](const Reuse& reuse) { return reuse.to == id && !needed_from(reuse.from, now + 1); });
        const bool alive = graph.buffer(id).planned() && begun && needed_from(id, now);
        if (alive && !over_another) live += graph.buffer(id).size;
      }
      ASSERT_EQ(found.live[step], live) << "seed " << seed << ", step " << step;
      peak = std::max(peak, live);
    }
    EXPECT_EQ(found.peak, peak);
    EXPECT_EQ(found.live[found.peak_step.index()], peak);
  }
}

}  // namespace
}  // namespace lowtide
