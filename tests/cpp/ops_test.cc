#include "lowtide/ops.h"

#include <set>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;

TEST(Ops, BatchNormWritesItsRunningStatisticsInTraining) {
  const std::optional<OpFacts> facts = op_facts("aten::native_batch_norm");
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->hidden_writes.condition, 5u);
  EXPECT_THAT(facts->hidden_writes.arguments, ElementsAre(3u, 4u));
}

TEST(Ops, OneDnnAloneKnowsHowMuchItsRecurrentLayersHandOn) {
  ASSERT_TRUE(op_facts("aten::mkldnn_rnn_layer"));
  EXPECT_EQ(op_facts("aten::mkldnn_rnn_layer")->runtime_sized_result, 3u);
  EXPECT_TRUE(op_facts("aten::mkldnn_rnn_layer")->sees_grad_mode);
  EXPECT_EQ(op_facts("aten::native_batch_norm")->runtime_sized_result, std::nullopt);
  EXPECT_FALSE(op_facts("aten::native_batch_norm")->sees_grad_mode);
}

TEST(Ops, EmptyTensorsAreMemoryAsItWasFound) {
  for (const char* name : {"aten::empty", "aten::empty_like", "aten::new_empty", "aten::mkldnn_rnn_layer"}) {
    ASSERT_TRUE(op_facts(name)) << name;
    EXPECT_TRUE(op_facts(name)->leaves_results_unwritten) << name;
  }
  EXPECT_FALSE(op_facts("aten::native_batch_norm")->leaves_results_unwritten);
}

TEST(Ops, ProductsOfMatricesHaveThreeAxes) {
  EXPECT_EQ(op_facts("aten::mm")->axes, "mk,kn->mn");
  EXPECT_EQ(op_facts("aten::relu")->axes, "...");
  EXPECT_EQ(op_facts("aten::mkldnn_rnn_layer")->axes, "");
}

TEST(Ops, EveryOpHasOneRow) {
  std::set<std::string_view> names;
  for (const OpFacts& row : known_ops()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(Ops, MostSchemasAreTheWholeTruth) {
  EXPECT_EQ(op_facts("aten::relu_"), std::nullopt);
}

}  // namespace
}  // namespace lowtide
