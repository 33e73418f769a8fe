// Algorithms that a caller brings: found by name, and never believed.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/plan.h"
#include "lowtide/verify.h"
#include "makers.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using testing::HasSubstr;

// 0 is held for 3 while 1 and 2 run.
const std::vector<Maker> kHeld = {{128}, {512, {0}}, {64, {1}}, {64, {2, 0}}};

Result<BoundedOrder> backwards(const Graph& graph, Work&) {
  BoundedOrder made;
  for (std::size_t i = graph.num_ops(); i-- > 0;) made.order.push_back(OpId(i));
  return made;
}

// Side by side, whatever their lives.
Result<BoundedLayout> in_a_row(std::span<const LayoutItem> items, Work&) {
  BoundedLayout made;
  for (const LayoutItem& item : items) {
    made.layout.offsets.push_back(align_up(made.layout.arena));
    made.layout.arena = made.layout.offsets.back() + item.size;
  }
  return made;
}

Result<BoundedLayout> all_at_zero(std::span<const LayoutItem> items, Work&) {
  BoundedLayout made{{std::vector<Bytes>(items.size()), Bytes(0)}};
  for (const LayoutItem& item : items) made.layout.arena = std::max(made.layout.arena, item.size);
  return made;
}

PlanOptions with_order(std::string name, std::function<Result<BoundedOrder>(const Graph&, Work&)> run) {
  PlanOptions options{.order = name};
  options.others.orders.push_back({"mine", "A test's.", std::move(run)});
  return options;
}

TEST(OwnAlgorithms, AnOrderIsFoundByItsName) {
  const Graph graph = graph_of(std::vector<Maker>{{64}, {64}, {64}});
  const Plan made = unwrap(plan(graph, with_order("mine", backwards)));
  EXPECT_EQ(made.order.front(), OpId(2));
  EXPECT_EQ(made.provenance.order, "mine");
  const Result<Plan> mistyped = plan(graph, with_order("mien", backwards));
  ASSERT_FALSE(mistyped.ok());
  EXPECT_EQ(mistyped.error().code, ErrorCode::unknown_algorithm);
  EXPECT_THAT(mistyped.error().message, HasSubstr("there is no order algorithm 'mien'; there are: program, "));
  EXPECT_THAT(mistyped.error().message, HasSubstr(", mine"));
}

TEST(OwnAlgorithms, AnOrderThatBreaksADependencyIsNoPlan) {
  EXPECT_FALSE(plan(graph_of(kHeld), with_order("mine", backwards)).ok());
  const auto some = [](const Graph&, Work&) -> Result<BoundedOrder> { return BoundedOrder{{OpId(0)}}; };
  EXPECT_FALSE(plan(graph_of(kHeld), with_order("mine", some)).ok());
  const auto unknown = [](const Graph&, Work&) -> Result<BoundedOrder> {
    return BoundedOrder{{OpId(0), OpId(1), OpId(2), OpId(77)}};
  };
  EXPECT_FALSE(plan(graph_of(kHeld), with_order("mine", unknown)).ok());
}

TEST(OwnAlgorithms, OursKeepTheirNames) {
  PlanOptions options{.order = "program"};
  options.others.orders.push_back({"program", "A test's.", backwards});
  EXPECT_EQ(unwrap(plan(graph_of(kHeld), options)).order.front(), OpId(0));
}

TEST(OwnAlgorithms, ALayoutIsVerified) {
  const std::vector<LayoutAlgorithm> others = {{"row", "Side by side.", in_a_row}, {"zero", "Wrong.", all_at_zero}};
  const std::vector<LayoutItem> items = {{StepIndex(0), StepIndex(2), Bytes(64)},
                                         {StepIndex(1), StepIndex(3), Bytes(64)}};
  const NamedLayout row = unwrap(lay_out(items, {.algorithm = "row", .others = others}));
  EXPECT_EQ(row.layout.arena, Bytes(128));
  EXPECT_EQ(row.bound, Bytes(128));
  EXPECT_EQ(row.algorithm, "row");
  const Result<NamedLayout> zero = lay_out(items, {.algorithm = "zero", .others = others});
  ASSERT_FALSE(zero.ok());
  EXPECT_EQ(zero.error().code, ErrorCode::block_overlap);
  EXPECT_THAT(zero.error().message, HasSubstr("layout algorithm 'zero': "));
  const auto nothing = [](std::span<const LayoutItem>, Work&) -> Result<BoundedLayout> { return BoundedLayout{}; };
  const std::vector<LayoutAlgorithm> empty = {{"nothing", "Wrong.", nothing}};
  EXPECT_FALSE(lay_out(items, {.algorithm = "nothing", .others = empty}).ok());
}

TEST(OwnAlgorithms, ALayoutOfAPlan) {
  PlanOptions options{.layout = "row"};
  options.others.layouts = {{"row", "Side by side.", in_a_row}, {"zero", "Wrong.", all_at_zero}};
  const Plan made = unwrap(plan(graph_of(kHeld), options));
  EXPECT_EQ(made.arena, Bytes(768));
  EXPECT_EQ(made.provenance.layout, "row");
  options.layout = "zero";
  EXPECT_FALSE(plan(graph_of(kHeld), options).ok());
}

// What proves more than is so may hide a smaller arena, but it does not make a plan whose arena is below its bound.
TEST(OwnAlgorithms, ABoundIsNeverAboveTheArena) {
  const auto boasts = [](std::span<const LayoutItem> items, Work& work) {
    Result<BoundedLayout> made = in_a_row(items, work);
    made->bound = Bytes(1) + made->layout.arena;
    return made;
  };
  const std::vector<LayoutAlgorithm> others = {{"boasts", "Wrong.", boasts}};
  const std::vector<LayoutItem> items = {{StepIndex(0), StepIndex(1), Bytes(64)},
                                         {StepIndex(1), StepIndex(2), Bytes(64)}};
  const NamedLayout made = unwrap(lay_out(items, {.algorithm = "boasts", .others = others}));
  EXPECT_EQ(made.bound, made.layout.arena);
}

PlanOptions with_steps(std::vector<std::size_t> ops) {
  PlanOptions options{.recompute = "mine", .memory_budget = Bytes(640)};
  options.others.recomputes.push_back(
      {"mine", "A test's.", [ops](const Graph&, std::span<const OpId>, Work&) -> Result<std::vector<Steps>> {
         Steps steps;
         for (const std::size_t op : ops) steps.push_back(OpId(op));
         return std::vector<Steps>{steps};
       }});
  return options;
}

TEST(OwnAlgorithms, WhatRunsAgainIsMeasuredAndVerified) {
  const Graph graph = graph_of(kHeld);
  EXPECT_GT(unwrap(plan(graph)).arena, Bytes(640));
  const Plan made = unwrap(plan(graph, with_steps({0, 1, 2, 0, 3})));
  EXPECT_EQ(made.order.size(), 5u);
  EXPECT_LE(made.arena, Bytes(640));
  EXPECT_EQ(made.provenance.recompute, "mine");
  EXPECT_TRUE(verify(graph, made).ok());
}

TEST(OwnAlgorithms, StepsThatLeaveSomethingOutAreNoPlan) {
  const std::vector<std::vector<std::size_t>> wrong = {{},           {0, 1, 2},     {0, 2, 1, 3},
                                                       {1, 0, 2, 3}, {0, 1, 2, 77}, {0, 1, 2, 3, 4}};
  for (const std::vector<std::size_t>& ops : wrong) {
    const Result<Plan> made = plan(graph_of(kHeld), with_steps(ops));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::malformed_plan);
    EXPECT_EQ(made.error().message,
              "recompute algorithm 'mine': steps whose first runs are not the order that was given");
  }
}

// Ops that must not run again are in no plan twice, whoever asks.
TEST(OwnAlgorithms, WhatMustNotRunAgainDoesNot) {
  std::vector<Maker> makers = kHeld;
  makers[0].flags.must_not_recompute = true;
  EXPECT_FALSE(plan(graph_of(makers), with_steps({0, 1, 2, 0, 3})).ok());
}

}  // namespace
}  // namespace lowtide
