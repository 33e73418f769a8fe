#include "lowtide/ops.h"

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

TEST(Ops, RecurrentLayersOfOneDnnHaveOpaqueOperands) {
  ASSERT_TRUE(op_facts("aten::mkldnn_rnn_layer_backward"));
  EXPECT_TRUE(op_facts("aten::mkldnn_rnn_layer_backward")->opaque_operands);
  EXPECT_FALSE(op_facts("aten::native_batch_norm")->opaque_operands);
}

TEST(Ops, MostSchemasAreTheWholeTruth) {
  EXPECT_EQ(op_facts("aten::relu_"), std::nullopt);
}

}  // namespace
}  // namespace lowtide
