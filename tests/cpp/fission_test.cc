#include <algorithm>
#include <string_view>
#include <vector>

#include "fission/splits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/lifetimes.h"
#include "lowtide/plan.h"
#include "lowtide/verify.h"
#include "random_step.h"
#include "rewrite/recompute.h"
#include "unwrap.h"

namespace lowtide {
namespace {

constexpr Bytes kLogits{1 << 20};
constexpr Bytes kHidden{1 << 14};

// The end of a language model: logits are large, and the loss lies between their two uses. Rows are an axis of all
// ops; along it, the loss and the gradient of the weight are sums.
class Head {
 public:
  Head() {
    hidden_ = resident("hidden", kHidden);
    weight_ = resident("weight", kHidden);
    const BufferId logits = planned("logits"), logp = planned("logp"), g = planned("g"), dlogits = planned("dlogits");
    const BufferId loss = planned("loss", Bytes(64));
    const BufferId dhidden = planned("dhidden", kHidden), dweight = planned("dweight", kHidden);
    add("mm", {{hidden_, kHidden}, {weight_, kWhole}}, logits, kLogits);
    add("log_softmax", {{logits, kLogits}}, logp, kLogits);
    add("nll", {{logp, kLogits}}, loss, kWhole);
    backward_ = true;
    add("nll_backward", {{loss, kWhole}, {logp, kLogits}}, g, kLogits);
    add("log_softmax_backward", {{g, kLogits}, {logp, kLogits}}, dlogits, kLogits);
    add("mm", {{dlogits, kLogits}, {weight_, kWhole}}, dhidden, kHidden);
    add("mm", {{dlogits, kLogits}, {hidden_, kHidden}}, dweight, kWhole);
    for (const BufferId kept : {loss, dhidden, dweight}) EXPECT_TRUE(builder_.keep(kept).ok());
  }

  Graph graph() && { return unwrap(std::move(builder_).build()); }

 private:
  static constexpr Bytes kWhole{0};

  BufferId resident(std::string_view name, Bytes size) {
    return unwrap(builder_.add_buffer({.size = size, .residence = Residence::resident, .name = name, .initial = true}));
  }
  BufferId planned(std::string_view name, Bytes size = kLogits) {
    return unwrap(builder_.add_buffer({.size = size, .name = name}));
  }

  void add(std::string_view name, const std::vector<std::pair<BufferId, Bytes>>& reads, BufferId made, Bytes period) {
    OpSpec spec{.name = name, .writes = {made}, .cost = Nanos(640), .flags = {.backward = backward_}};
    AxisSpec rows{.writes = {period}};
    for (const auto& [buffer, cut] : reads) {
      spec.reads.push_back(unwrap(builder_.add_value(buffer, "float32", {})));
      rows.reads.push_back(cut);
    }
    const OpId op = unwrap(builder_.add_op(spec));
    for (const std::uint32_t count : {2, 4, 8, 16}) {
      rows.counts.push_back({count, Bytes(0), Nanos(640 / count + 1), period != kWhole});
    }
    EXPECT_TRUE(builder_.add_axis(op, rows).ok());
  }

  GraphBuilder builder_;
  BufferId hidden_, weight_;
  bool backward_ = false;
};

Divided divided(const Graph& graph, const Splitting& splitting) {
  return unwrap(run_in_parts(unwrap(run_again(graph, splitting.steps)).graph, splitting.splits));
}

TEST(Fission, LogitsAreNeverWhole) {
  const Graph graph = Head().graph();
  ASSERT_EQ(operand_bound(graph), Bytes(3 << 20)) << "at log_softmax_backward";
  const std::optional<Splitting> found = splits_within(graph, Bytes(1 << 19), false);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steps.size(), graph.num_ops() + 2) << "logits and their log_softmax are made again";
  EXPECT_EQ(found->splits.size(), 2u) << "before the loss, and behind it";
  const Divided made = divided(graph, *found);
  EXPECT_LE(operand_bound(made.graph), Bytes(1 << 19));
  for (BufferId id(0); id.index() < made.graph.num_buffers(); id = id.next()) {
    EXPECT_LE(made.graph.buffer(id).size, Bytes(1 << 18)) << made.graph.buffer(id).name;
  }
}

TEST(Fission, InAsFewPartsAsFit) {
  const Graph graph = Head().graph();
  const std::optional<Splitting> found = splits_within(graph, Bytes(11 << 18), false);
  ASSERT_TRUE(found);
  for (const Split& split : found->splits) EXPECT_EQ(split.count, 2u);
}

TEST(Fission, ExactPartsHaveNoSums) {
  const Graph graph = Head().graph();
  const std::optional<Splitting> any = splits_within(graph, Bytes(1 << 19), true);
  EXPECT_FALSE(any) << "the gradient of the weight reads all rows of dlogits";
  const std::optional<Splitting> found = splits_within(graph, Bytes(5 << 18), true);
  ASSERT_TRUE(found) << "but dlogits alone fits";
  const Graph again = unwrap(run_again(graph, found->steps)).graph;
  for (const Split& split : found->splits) {
    for (const CutOp& one : split.ops) {
      const Axis axis = again.axis(one.op, one.axis);
      EXPECT_TRUE(std::ranges::find(axis.counts, split.count, &PartCount::count)->exact);
    }
  }
  EXPECT_LE(operand_bound(divided(graph, *found).graph), Bytes(5 << 18));
}

TEST(Fission, NothingWhereNothingIsTooLarge) {
  EXPECT_FALSE(splits_within(Head().graph(), Bytes(4 << 20), false));
  EXPECT_FALSE(splits_within(Head().graph(), Bytes(1 << 10), false)) << "the hidden state is not cut that far";
}

TEST(Fission, PlansKeepBudgetsThatWholeOpsCannot) {
  const Graph graph = Head().graph();
  const Bytes resident = graph.resident_bytes();
  const auto with = [&](Bytes arena, Parts parts) {
    return plan(graph, {.parts = parts, .memory_budget = Budget(resident + arena)});
  };
  EXPECT_FALSE(with(Bytes(1 << 19), Parts::none).ok());
  EXPECT_FALSE(with(Bytes(1 << 19), Parts::exact).ok());
  const Plan found = unwrap(with(Bytes(1 << 19), Parts::any));
  EXPECT_LE(found.arena, Bytes(1 << 19));
  EXPECT_TRUE(verify(graph, found).ok());
  EXPECT_FALSE(is_exact(graph, found));
  EXPECT_GT(found.order.size(), 3 * graph.num_ops());
  const Plan exact = unwrap(with(Bytes(5 << 18), Parts::exact));
  EXPECT_LE(exact.arena, Bytes(5 << 18));
  EXPECT_TRUE(is_exact(graph, exact));
  EXPECT_TRUE(unwrap(with(Bytes(4 << 20), Parts::any)).parts.empty()) << "whole ops are enough";
}

TEST(Fission, KeepsItsWordOnRandomSteps) {
  int found = 0, made_again = 0;
  for (std::uint32_t seed = 0; seed < 1'000; ++seed) {
    const Graph graph = random_step(seed);
    const bool exact = seed % 2 == 0;
    for (const double share : {0.8, 0.5, 0.3}) {
      const Bytes most(static_cast<std::uint64_t>(share * static_cast<double>(operand_bound(graph).count())));
      const std::optional<Splitting> splitting = splits_within(graph, most, exact);
      if (!splitting) continue;
      ++found;
      made_again += splitting->steps.size() > graph.num_ops() ? 1 : 0;
      const Divided made = divided(graph, *splitting);
      ASSERT_LE(operand_bound(made.graph), most) << "seed " << seed;
      const Graph again = unwrap(run_again(graph, splitting->steps)).graph;
      for (const Split& split : splitting->splits) {
        for (const CutOp& one : split.ops) {
          const std::span<const PartCount> counts = again.axis(one.op, one.axis).counts;
          ASSERT_TRUE(std::ranges::find(counts, split.count, &PartCount::count)->exact || !exact);
        }
      }
    }
  }
  EXPECT_GT(found, 150);
  EXPECT_GT(made_again, 25);
}

TEST(Fission, PlansOfRandomStepsAreVerified) {
  int in_parts = 0;
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    const Graph graph = random_step(seed);
    for (const double share : {0.7, 0.4}) {
      const double arena = share * static_cast<double>(operand_bound(graph).count());
      const Budget budget = graph.resident_bytes() + Bytes(static_cast<std::uint64_t>(arena));
      const Result<Plan> found = plan(graph, {.parts = Parts::any, .memory_budget = budget});
      if (!found.ok()) {
        ASSERT_EQ(found.error().code, ErrorCode::memory_infeasible) << found.error().message << " seed " << seed;
        continue;
      }
      ASSERT_FALSE(found->parts.empty());
      ++in_parts;
    }
  }
  EXPECT_GT(in_parts, 2);
}

}  // namespace
}  // namespace lowtide
