#include "lowtide/summary.h"

#include "gtest/gtest.h"
#include "unwrap.h"

namespace lowtide {
namespace {

// The example of summary.h.
Graph example() {
  GraphBuilder builder;
  const BufferId w = unwrap(builder.add_buffer(
      {.size = Bytes(4096), .residence = Residence::resident, .role = Role::parameter, .name = "w", .initial = true}));
  const BufferId y = unwrap(builder.add_buffer({.size = Bytes(1024), .name = "y"}));
  const BufferId out = unwrap(
      builder.add_buffer({.size = Bytes(1024), .residence = Residence::resident, .role = Role::output, .name = "out"}));
  unwrap(builder.add_op({.name = "aten::mul", .reads = {unwrap(builder.add_value(w, "f32", {}))}, .writes = {y}}));
  const ValueId first = unwrap(builder.add_value(y, "f32", {}));
  const ValueId second = unwrap(builder.add_value(y, "f32", {}));
  unwrap(builder.add_op({.name = "aten::add",
                         .reads = {first, second},
                         .writes = {out},
                         .workspace = Bytes(256),
                         .cost = Nanos(2'500'000),
                         .source = "train.py:8",
                         .module = "head"}));
  return unwrap(std::move(builder).build());
}

TEST(Summary, Graph) {
  EXPECT_EQ(summary(example()),
            "graph     2 ops, 3 buffers (1 planned, 2 resident), 3 versions, 3 values\n"
            "resident  5.00 KiB: parameter 4.00 KiB, output 1.00 KiB\n"
            "peak      1.25 KiB in program order, at op 1 'aten::add' (train.py:8, in head)\n"
            "bound     1.25 KiB: what one op needs on its own, in any order\n"
            "held by   1.00 KiB  activation  y\n"
            "             256 B  workspace   workspace of aten::add");
}

TEST(Summary, GraphWithoutOps) {
  EXPECT_EQ(summary(unwrap(GraphBuilder().build())),
            "graph     0 ops, 0 buffers (0 planned, 0 resident), 0 versions, 0 values\n"
            "resident  0 B");
}

TEST(Summary, FoundSoFar) {
  EXPECT_EQ(summary(FoundSoFar{Bytes(1122), Bytes(1020), 0.041}),
            "peak 1.10 KiB at +4.1 % time, bound 1020 B, gap 10.0 %");
  EXPECT_EQ(summary(FoundSoFar{Bytes(2048), Bytes(2048), std::nullopt}), "peak 2.00 KiB, bound 2.00 KiB, gap 0.0 %");
}

TEST(Summary, Plan) {
  Plan made = unwrap(plan(example()));
  made.provenance.version = "1.2.3";
  EXPECT_EQ(summary(made),
            "plan      2 steps, order best, layout first_fit, lowtide 1.2.3\n"
            "memory    6.25 KiB = 5.00 KiB resident + 1.25 KiB arena\n"
            "arena     peak 1.25 KiB, bound 1.25 KiB, gap 0.00 %, fragmentation 0.00 %\n"
            "time      2.500 ms predicted");
}

// What was read and not verified may name blocks that it does not have: that counts as no transfer.
TEST(Summary, PlanWithTiers) {
  Plan made = unwrap(plan(example()));
  made.provenance.version = "1.2.3";
  made.tiers = {{.name = "disk", .link = {Bytes(1), Bytes(1)}, .arena = Bytes(1024), .resident = Bytes(4096)}};
  made.blocks.push_back({BufferId(0), StepIndex(0), StepIndex(2), Bytes(0), 1});
  const BlockId slot(made.blocks.size() - 1);
  made.transfers = {{BlockId(0), slot, StepIndex(1), StepIndex(2)},
                    {BlockId(70'000), BlockId(70'001), StepIndex(1), StepIndex(2)}};
  EXPECT_EQ(summary(made),
            "plan      2 steps, order best, layout first_fit, lowtide 1.2.3\n"
            "memory    6.25 KiB = 5.00 KiB resident + 1.25 KiB arena\n"
            "swapped   5.00 KiB in disk = 4.00 KiB resident + 1.00 KiB arena, 1 transfers\n"
            "arena     peak 1.25 KiB, bound 1.25 KiB, gap 0.00 %, fragmentation 0.00 %\n"
            "time      2.500 ms predicted");
}

}  // namespace
}  // namespace lowtide
