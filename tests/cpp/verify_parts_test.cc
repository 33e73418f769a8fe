// What verify() says of plans that run ops in parts.
#include <algorithm>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/verify.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::HasSubstr;

// Four ops that run in parts, and two that do not:
//
//   op 0 f       reads x     writes b                      buffers  0 x     resident, initial, 256 bytes
//   op 1 g       reads b     writes c    may reuse b                1 b     planned, 256 bytes
//   op 2 relu_   reads c     writes c                               2 c     planned, 256 bytes
//   op 3 total   reads c     writes s                               3 s     planned, 64 bytes
//   op 4 use     reads s
//   op 5 tail    reads s     writes t    after op 4                 4 t     planned, 64 bytes, kept
//
// All but op 4 have axis 0, rows, in 2 or 4 parts: a part of f needs 64 bytes of workspace in 4 parts. Ops 0 to 3 have
// axis 1, columns, in 2 parts. Along both, total adds its parts up. Axis 2 of g takes rows to columns.
Graph graph_with_axes(bool keeps_c = false) {
  GraphBuilder builder;
  const BufferId x =
      unwrap(builder.add_buffer({.size = Bytes(256), .residence = Residence::resident, .name = "x", .initial = true}));
  const auto planned = [&](const char* name, std::uint64_t size) {
    return unwrap(builder.add_buffer({.size = Bytes(size), .name = name}));
  };
  const BufferId b = planned("b", 256);
  const BufferId c = planned("c", 256);
  const BufferId s = planned("s", 64);
  const BufferId t = planned("t", 64);
  const auto read = [&](BufferId buffer) { return std::vector{unwrap(builder.add_value(buffer, "u8", {}))}; };
  const auto axis = [&](OpId op, Bytes from, Bytes to, const std::vector<PartCount>& counts) {
    unwrap(builder.add_axis(op, {.reads = {from}, .writes = {to}, .counts = counts}));
  };
  const Bytes rows(256);
  const Bytes columns(64);
  const OpId f = unwrap(builder.add_op({.name = "f", .reads = read(x), .writes = {b}, .cost = Nanos(10)}));
  axis(f, rows, rows, {{2, Bytes(0), Nanos(6)}, {4, Bytes(64), Nanos(4)}});
  axis(f, columns, columns, {{2, Bytes(0), Nanos(6)}});
  const OpId g = unwrap(builder.add_op({.name = "g", .reads = read(b), .writes = {c}, .cost = Nanos(10)}));
  unwrap(builder.add_reuse(g, b, c));
  axis(g, rows, rows, {{2, Bytes(0), Nanos(6)}, {4, Bytes(0), Nanos(4)}});
  axis(g, columns, columns, {{2, Bytes(0), Nanos(6)}});
  axis(g, rows, columns, {{2, Bytes(0), Nanos(6)}});
  const OpId relu = unwrap(builder.add_op({.name = "relu_", .reads = read(c), .writes = {c}, .cost = Nanos(2)}));
  axis(relu, rows, rows, {{2, Bytes(0), Nanos(1)}, {4, Bytes(0), Nanos(1)}});
  axis(relu, columns, columns, {{2, Bytes(0), Nanos(1)}});
  const OpId total = unwrap(builder.add_op({.name = "total", .reads = read(c), .writes = {s}, .cost = Nanos(4)}));
  axis(total, rows, Bytes(0), {{2, Bytes(0), Nanos(2)}, {4, Bytes(0), Nanos(1)}});
  axis(total, columns, Bytes(0), {{2, Bytes(0), Nanos(2)}});
  const OpId use = unwrap(builder.add_op({.name = "use", .reads = read(s)}));
  const OpId tail = unwrap(builder.add_op({.name = "tail", .reads = read(s), .writes = {t}}));
  axis(tail, Bytes(64), Bytes(64), {{2}});
  unwrap(builder.add_edge(use, tail));
  unwrap(builder.keep(t));
  if (keeps_c) unwrap(builder.keep(c));
  return unwrap(std::move(builder).build());
}

constexpr StepPart kWhole;
constexpr StepPart half(std::uint32_t index, std::uint32_t axis = 0) {
  return {axis, {index, 2}};
}

struct Step {
  std::size_t op;
  std::vector<std::size_t> reads;
  std::vector<std::size_t> writes;
  StepPart part = kWhole;
};

void set_steps(Plan& plan, const std::vector<Step>& steps) {
  plan.order.clear();
  plan.parts.clear();
  plan.reads = plan.writes = {};
  plan.workspaces.assign(steps.size(), Bytes(0));
  const auto ids = [](const std::vector<std::size_t>& numbers) {
    return std::vector<BlockId>(numbers.begin(), numbers.end());
  };
  for (const Step& step : steps) {
    plan.order.emplace_back(step.op);
    plan.parts.push_back(step.part);
    plan.reads.add(ids(step.reads));
    plan.writes.add(ids(step.writes));
  }
}

void add_block(Plan& plan, std::size_t buffer, std::size_t begin, std::size_t end, std::optional<std::uint64_t> offset,
               Part part = {}, std::uint64_t period = 0) {
  plan.blocks.push_back({BufferId(buffer), StepIndex(begin), StepIndex(end),
                         offset ? std::optional(Bytes(*offset)) : std::nullopt, 0, part, Bytes(period)});
}

// By rows in 2 parts, of which b and c have a block each:
//
//   offset 320 +----+----+----+----+----+----+----+----+----+----+
//              |              |                s                 |         block  0 x  1 s  2 t
//          256 +----+----+----+----+----+----+----+----+----+----+                3, 4  parts of b
//              |    |      c0      |    |      c1      |                          5, 6  parts of c
//          128 +----+----+----+----+----+----+----+----+         +----+
//              |   b0    |         |   b1    |                   | t  |
//            0 +----+----+----+----+----+----+----+----+----+----+----+--> step
//                f0   g0  relu0 tot0   f1   g1  relu1 tot1  use  tail
Plan right_plan_in_parts() {
  Plan plan;
  set_steps(plan, {{0, {0}, {3}, half(0)},
                   {1, {3}, {5}, half(0)},
                   {2, {5}, {5}, half(0)},
                   {3, {5}, {1}, half(0)},
                   {0, {0}, {4}, half(1)},
                   {1, {4}, {6}, half(1)},
                   {2, {6}, {6}, half(1)},
                   {3, {6}, {1}, half(1)},
                   {4, {1}, {}},
                   {5, {1}, {2}}});
  add_block(plan, 0, 0, 10, {});
  add_block(plan, 3, 3, 10, 256);
  add_block(plan, 4, 9, 10, 0);
  add_block(plan, 1, 0, 2, 0, {0, 2}, 256);
  add_block(plan, 1, 4, 6, 0, {1, 2}, 256);
  add_block(plan, 2, 1, 4, 128, {0, 2}, 256);
  add_block(plan, 2, 5, 8, 128, {1, 2}, 256);
  plan.arena = plan.peak = plan.bound = Bytes(320);  // at step 5
  plan.resident = Bytes(256);
  plan.time = Nanos(2 * (6 + 6 + 1 + 2));
  return plan;
}

// The same steps, with b and c in whole blocks: 3 and 4.
Plan in_whole_blocks(std::vector<StepPart> parts = {half(0), half(0), half(0), half(0), half(1), half(1), half(1),
                                                    half(1)}) {
  Plan plan;
  std::vector<Step> steps;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::vector<Step> ops = {{0, {0}, {3}}, {1, {3}, {4}}, {2, {4}, {4}}, {3, {4}, {1}}};
    steps.push_back(ops[i % 4]);
    steps.back().part = parts[i];
  }
  steps.push_back({4, {1}, {}});
  steps.push_back({5, {1}, {2}});
  set_steps(plan, steps);
  add_block(plan, 0, 0, 10, {});
  add_block(plan, 3, 3, 10, 512);
  add_block(plan, 4, 9, 10, 0);
  add_block(plan, 1, 0, 6, 0);
  add_block(plan, 2, 1, 8, 256);
  plan.arena = plan.peak = plan.bound = Bytes(576);
  plan.resident = Bytes(256);
  plan.time = Nanos(2 * (6 + 6 + 1 + 2));
  return plan;
}

void expect_right(const Plan& plan) {
  const Status status = verify(graph_with_axes(), plan);
  EXPECT_TRUE(status.ok()) << status.error().message;
}

TEST(VerifyParts, AcceptsPartsInBlocksOfTheirOwn) {
  expect_right(right_plan_in_parts());
}

TEST(VerifyParts, AcceptsPartsOfWholeBlocks) {
  expect_right(in_whole_blocks());
  expect_right(in_whole_blocks(
      {half(0, 1), half(0, 1), half(0, 1), half(0, 1), half(1, 1), half(1, 1), half(1, 1), half(1, 1)}));
}

TEST(VerifyParts, AcceptsAnyOrderOfPartsThatAreNotAdded) {
  Plan plan = in_whole_blocks();
  set_steps(plan, {{0, {0}, {3}, half(1)},
                   {1, {3}, {4}, half(1)},
                   {2, {4}, {4}, half(1)},
                   {0, {0}, {3}, half(0)},
                   {1, {3}, {4}, half(0)},
                   {2, {4}, {4}, half(0)},
                   {3, {4}, {1}, half(0)},
                   {3, {4}, {1}, half(1)},
                   {4, {1}, {}},
                   {5, {1}, {2}}});
  expect_right(plan);
}

TEST(VerifyParts, AcceptsOtherPartsOfWhatIsComplete) {
  // b is made in 2 parts and read in 4; what runs again may run in other parts too.
  Plan plan = in_whole_blocks();
  set_steps(plan, {{0, {0}, {3}, half(0)},
                   {0, {0}, {3}, half(1)},
                   {1, {3}, {4}, {0, {2, 4}}},
                   {1, {3}, {4}, {0, {0, 4}}},
                   {1, {3}, {4}, {0, {1, 4}}},
                   {1, {3}, {4}, {0, {3, 4}}},
                   {2, {4}, {4}, half(1, 1)},
                   {2, {4}, {4}, half(0, 1)},
                   {3, {4}, {1}},
                   {0, {0}, {5}, half(0, 1)},
                   {4, {1}, {}},
                   {5, {1}, {2}}});
  for (Block& block : plan.blocks) block = {block.buffer, StepIndex(0), StepIndex(12), block.offset};
  plan.blocks[2].offset = Bytes(576);
  add_block(plan, 1, 9, 10, 640, {0, 2}, 64);
  plan.arena = plan.peak = plan.bound = Bytes(768);
  plan.time = Nanos(2 * 6 + 4 * 4 + 2 * 1 + 4 + 6);
  expect_right(plan);
}

TEST(VerifyParts, WantsWhatIsKeptInOneBlock) {
  Plan plan = right_plan_in_parts();
  plan.blocks[6].end = StepIndex(10);
  expect_right(plan);
  const Status status = verify(graph_with_axes(true), plan);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::final_content_lost) << status.error().message;
  Plan whole = in_whole_blocks();
  whole.blocks[4].end = StepIndex(10);
  const Status accepted = verify(graph_with_axes(true), whole);
  EXPECT_TRUE(accepted.ok()) << accepted.error().message;
}

// Block 3 of the first part of b, or in whole blocks of all of it, is stored before step 1.
void add_store(Plan& plan) {
  plan.tiers = {{.name = "disk", .link = {Bytes(1'000'000'000), Bytes(1'000'000'000)}, .arena = Bytes(128)}};
  plan.blocks.push_back({BufferId(1), StepIndex(1), StepIndex(3), Bytes(0), 1, {0, 2}, Bytes(256)});
  plan.transfers = {{BlockId(3), BlockId(plan.blocks.size() - 1), StepIndex(1), StepIndex(1)}};
  plan.time += Nanos(128);
}

TEST(VerifyParts, AcceptsATransferOfAPart) {
  Plan plan = right_plan_in_parts();
  add_store(plan);
  expect_right(plan);
}

TEST(VerifyParts, AcceptsAPartInTheBytesOfAnother) {
  Plan plan = right_plan_in_parts();
  // c0 where b0 lies, and c1 where b1 does: 128 bytes less at the peak, which is at step 3.
  plan.blocks[5].offset = plan.blocks[6].offset = Bytes(0);
  plan.blocks[1].offset = Bytes(128);
  plan.arena = plan.peak = plan.bound = Bytes(192);
  expect_right(plan);
}

TEST(VerifyParts, RefusesAPartInTheBytesOfOneThatIsCutInAnotherWay) {
  Plan plan = right_plan_in_parts();
  for (const std::size_t step : {1, 5}) plan.parts[step].axis = 2;
  for (const std::size_t step : {2, 3, 6, 7}) plan.parts[step].axis = 1;
  for (const std::size_t block : {5, 6}) plan.blocks[block].period = Bytes(64);
  expect_right(plan);
  plan.blocks[5].offset = plan.blocks[6].offset = Bytes(0);
  plan.blocks[1].offset = Bytes(128);
  plan.arena = plan.peak = plan.bound = Bytes(192);
  const Status status = verify(graph_with_axes(), plan);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::block_overlap) << status.error().message;
}

TEST(VerifyParts, AcceptsAPartThatRunsAgain) {
  Plan plan = right_plan_in_parts();
  // Before its second use, f runs part 0 again in another block, which nobody reads.
  set_steps(plan, {{0, {0}, {3}, half(0)},
                   {1, {3}, {5}, half(0)},
                   {2, {5}, {5}, half(0)},
                   {3, {5}, {1}, half(0)},
                   {0, {0}, {4}, half(1)},
                   {0, {0}, {7}, half(0)},
                   {1, {4}, {6}, half(1)},
                   {2, {6}, {6}, half(1)},
                   {3, {6}, {1}, half(1)},
                   {4, {1}, {}},
                   {5, {1}, {2}}});
  const std::pair<std::size_t, std::size_t> lives[] = {{0, 11}, {3, 11}, {10, 11}, {0, 2}, {4, 7}, {1, 4}, {6, 9}};
  for (std::size_t i = 0; i < 7; ++i) {
    plan.blocks[i].begin = StepIndex(lives[i].first);
    plan.blocks[i].end = StepIndex(lives[i].second);
  }
  add_block(plan, 1, 5, 6, 128, {0, 2}, 256);
  plan.time += Nanos(6);
  expect_right(plan);
}

struct PartCase {
  const char* name;
  ErrorCode code;
  const char* message;
  void (*spoil)(Plan& plan);
};

const PartCase kPartCases[] = {
    {"parts_for_other_steps", ErrorCode::malformed_plan, "10 steps, but parts for 9",
     [](Plan& p) { p.parts.pop_back(); }},
    {"no_such_part", ErrorCode::malformed_plan,
     "step 1 runs part 2 of 2 of op 1 'g' along axis 0, but there is no such part",
     [](Plan& p) { p.parts[1].part.index = 2; }},
    {"part_of_nothing", ErrorCode::malformed_plan, "step 1 runs part 0 of 0 of op 1 'g' along axis 0, but there is no",
     [](Plan& p) { p.parts[1].part.count = 0; }},
    {"no_such_axis", ErrorCode::malformed_plan, "step 1 runs part 0 of 2 of op 1 'g' along axis 3, but it has 3",
     [](Plan& p) { p.parts[1].axis = 3; }},
    {"axis_of_a_whole", ErrorCode::malformed_plan, "along axis 1, but the whole has no axis",
     [](Plan& p) { p.parts[8].axis = 1; }},
    {"no_such_count", ErrorCode::malformed_plan, "step 1 runs part 0 of 3 of op 1 'g' along axis 0, but it cannot run",
     [](Plan& p) { p.parts[1].part.count = 3; }},
    {"part_of_an_ordered_op", ErrorCode::malformed_plan, "of op 5 'tail' along axis 0, but an edge orders it",
     [](Plan& p) { p.parts[9] = half(0); }},
    {"block_of_no_part", ErrorCode::malformed_plan,
     "block 3 (part 2 of 2 of buffer 1 'b') has a period of 256, but there is no such part",
     [](Plan& p) { p.blocks[3].part.index = 2; }},
    {"block_of_no_parts", ErrorCode::malformed_plan, "there is no such part",
     [](Plan& p) { p.blocks[3].part = {0, 0}; }},
    {"block_without_period", ErrorCode::malformed_plan, "has a period of 0, but that is not a multiple of 2",
     [](Plan& p) { p.blocks[3].period = Bytes(0); }},
    {"block_of_very_many_parts", ErrorCode::malformed_plan, "that is not a multiple of 4294967295",
     [](Plan& p) { p.blocks[3].part = {0, 4294967295}; }},
    {"period_beyond_the_buffer", ErrorCode::malformed_plan, "has a period of 512, but its buffer has 256 bytes",
     [](Plan& p) { p.blocks[3].period = Bytes(512); }},
    {"whole_with_period", ErrorCode::malformed_plan, "has a period of 64, but holds the whole",
     [](Plan& p) { p.blocks[1].period = Bytes(64); }},
    {"home_of_a_part", ErrorCode::malformed_plan, "has no offset: a home holds the whole",
     [](Plan& p) {
       p.blocks[0].part = {0, 2};
       p.blocks[0].period = Bytes(256);
     }},
    {"part_missing", ErrorCode::op_missing, "no step runs part 0 of 2 of op 0 'f'",
     [](Plan& p) { p.parts[0] = {0, {1, 2}}; }},
    {"parts_of_two_axes", ErrorCode::op_missing, "no step runs part 1 of 2 of op 0 'f'",
     [](Plan& p) { p.parts[4] = half(1, 1); }},
    {"another_part", ErrorCode::wrong_part,
     "step 1, op 1 'g', part 0 of 2 reads part 0 of 2 with a period of 256 of buffer 1 'b' in block 3 (part 1 of 2 of "
     "buffer 1 'b') with a period of 256",
     [](Plan& p) {
       std::swap(p.blocks[3].part, p.blocks[4].part);
       std::swap(p.parts[0], p.parts[4]);
     }},
    {"part_of_another_period", ErrorCode::wrong_part,
     "step 0, op 0 'f', part 0 of 2 writes part 0 of 2 with a period of 256 of buffer 1 'b' in block 3 (part 0 of 2 of "
     "buffer 1 'b') with a period of 64",
     [](Plan& p) { p.blocks[3].period = Bytes(64); }},
    {"sum_in_a_part", ErrorCode::wrong_part, "step 3, op 3 'total', part 0 of 2 writes the whole of buffer 3 's' in",
     [](Plan& p) {
       p.blocks[1].part = {0, 2};
       p.blocks[1].period = Bytes(64);
     }},
    {"whole_op_on_a_part", ErrorCode::wrong_part, "step 1, op 1 'g' reads the whole of buffer 1 'b' in block 3 (part 0",
     [](Plan& p) { p.parts[1] = p.parts[5] = kWhole; }},
    {"part_not_written", ErrorCode::read_before_write,
     "step 1, op 1 'g', part 0 of 2 reads part 0 of 2 with a period of 256 of version 0 of block 3 (buffer 1 'b'), "
     "which nothing has written yet",
     [](Plan& p) { p = in_whole_blocks({half(1), half(0), half(0), half(0), half(0), half(1), half(1), half(1)}); }},
    {"read_in_other_parts", ErrorCode::wrong_part, "which is not complete, or in other parts",
     [](Plan& p) {
       p = in_whole_blocks({half(0), half(0, 1), half(0), half(0), half(1), half(1, 1), half(1), half(1)});
     }},
    {"changed_early", ErrorCode::wrong_version, "of version 1 of block 4 (buffer 2 'c'), which holds version 0",
     [](Plan& p) {
       p = in_whole_blocks();
       std::swap(p.order[2], p.order[3]);
       std::swap(p.writes[2][0], p.writes[3][0]);
     }},
    {"made_in_other_parts", ErrorCode::block_made_twice,
     "step 4, op 0 'f', part 0 of 2 makes block 3 (buffer 1 'b'), which holds other parts already",
     [](Plan& p) {
       p = in_whole_blocks();
       set_steps(p, {{0, {0}, {3}, half(0)},
                     {1, {3}, {4}, half(0)},
                     {2, {4}, {4}, half(0)},
                     {3, {4}, {1}, half(0)},
                     {0, {0}, {3}, half(0, 1)},
                     {0, {0}, {3}, half(1)},
                     {1, {3}, {4}, half(1)},
                     {2, {4}, {4}, half(1)},
                     {3, {4}, {1}, half(1)},
                     {4, {1}, {}},
                     {5, {1}, {2}}});
       for (Block& block : p.blocks) block = {block.buffer, StepIndex(0), StepIndex(11), block.offset};
       p.blocks[2].offset = Bytes(576);
       p.arena = p.peak = Bytes(640);
     }},
    {"sum_read_early", ErrorCode::wrong_part, "step 7, op 4 'use' reads version 0 of block 1 (buffer 3 's'), which is",
     [](Plan& p) {
       set_steps(p, {{0, {0}, {3}, half(0)},
                     {1, {3}, {5}, half(0)},
                     {2, {5}, {5}, half(0)},
                     {3, {5}, {1}, half(0)},
                     {0, {0}, {4}, half(1)},
                     {1, {4}, {6}, half(1)},
                     {2, {6}, {6}, half(1)},
                     {4, {1}, {}},
                     {3, {6}, {1}, half(1)},
                     {5, {1}, {2}}});
       p.blocks[6].end = StepIndex(9);
     }},
    {"sum_out_of_order", ErrorCode::wrong_part,
     "step 3, op 3 'total', part 1 of 2 adds to block 1 (buffer 3 's'), but part 0 of 2 along axis 0 is to be added "
     "first",
     [](Plan& p) {
       p = in_whole_blocks();
       set_steps(p, {{0, {0}, {3}, half(1)},
                     {1, {3}, {4}, half(1)},
                     {2, {4}, {4}, half(1)},
                     {3, {4}, {1}, half(1)},
                     {0, {0}, {3}, half(0)},
                     {1, {3}, {4}, half(0)},
                     {2, {4}, {4}, half(0)},
                     {3, {4}, {1}, half(0)},
                     {4, {1}, {}},
                     {5, {1}, {2}}});
     }},
    {"part_added_twice", ErrorCode::wrong_part, "but part 1 of 2 along axis 0 is to be added first",
     [](Plan& p) {
       set_steps(p, {{0, {0}, {3}, half(0)},
                     {1, {3}, {5}, half(0)},
                     {2, {5}, {5}, half(0)},
                     {3, {5}, {1}, half(0)},
                     {3, {5}, {1}, half(0)},
                     {0, {0}, {4}, half(1)},
                     {1, {4}, {6}, half(1)},
                     {2, {6}, {6}, half(1)},
                     {3, {6}, {1}, half(1)},
                     {4, {1}, {}},
                     {5, {1}, {2}}});
       const std::pair<std::size_t, std::size_t> lives[] = {{0, 11}, {3, 11}, {10, 11}, {0, 2}, {5, 7}, {1, 5}, {6, 9}};
       for (std::size_t i = 0; i < 7; ++i) {
         p.blocks[i].begin = StepIndex(lives[i].first);
         p.blocks[i].end = StepIndex(lives[i].second);
       }
     }},
    {"part_made_twice", ErrorCode::block_made_twice,
     "step 4, op 0 'f', part 0 of 2 makes block 3 (part 0 of 2 of buffer 1 'b'), which holds version 0 already",
     [](Plan& p) {
       set_steps(p, {{0, {0}, {3}, half(0)},
                     {1, {3}, {5}, half(0)},
                     {2, {5}, {5}, half(0)},
                     {3, {5}, {1}, half(0)},
                     {0, {0}, {3}, half(0)},
                     {0, {0}, {4}, half(1)},
                     {1, {4}, {6}, half(1)},
                     {2, {6}, {6}, half(1)},
                     {3, {6}, {1}, half(1)},
                     {4, {1}, {}},
                     {5, {1}, {2}}});
       const std::pair<std::size_t, std::size_t> lives[] = {{0, 11}, {3, 11}, {10, 11}, {0, 5}, {5, 7}, {1, 4}, {6, 9}};
       for (std::size_t i = 0; i < 7; ++i) {
         p.blocks[i].begin = StepIndex(lives[i].first);
         p.blocks[i].end = StepIndex(lives[i].second);
       }
     }},
    {"transfer_to_another_part", ErrorCode::malformed_transfer,
     "transfer 0 goes from block 3 (part 0 of 2 of buffer 1 'b') to block 7 (part 1 of 2 of buffer 1 'b'), which holds "
     "another part",
     [](Plan& p) {
       add_store(p);
       p.blocks[7].part.index = 1;
     }},
    {"transfer_of_what_is_not_complete", ErrorCode::wrong_part,
     "before step 1, transfer 0 stores block 3 (buffer 1 'b'), which holds no version in whole",
     [](Plan& p) {
       p = in_whole_blocks();
       add_store(p);
       p.blocks[5].part = {};
       p.blocks[5].period = Bytes(0);
       p.tiers[0].arena = Bytes(256);
     }},
    {"workspace_of_a_part", ErrorCode::workspace_overlap,
     "step 0, op 0 'f', part 0 of 4: its workspace takes bytes [0,64), but block 3",
     [](Plan& p) {
       set_steps(p, {{0, {0}, {3}, {0, {0, 4}}},
                     {0, {0}, {3}, {0, {1, 4}}},
                     {0, {0}, {3}, {0, {2, 4}}},
                     {0, {0}, {3}, {0, {3, 4}}},
                     {1, {3}, {4}},
                     {2, {4}, {4}},
                     {3, {4}, {1}},
                     {4, {1}, {}},
                     {5, {1}, {2}}});
       p.blocks = in_whole_blocks().blocks;
       for (Block& block : p.blocks) block = {block.buffer, StepIndex(0), StepIndex(9), block.offset};
       p.blocks[2].offset = Bytes(576);
       p.arena = Bytes(640);
     }},
    {"taken_over_in_other_parts", ErrorCode::block_overlap, "begins on bytes [0,256), but block 3 (buffer 1 'b') lives",
     [](Plan& p) {
       // All of c where b lies, of which the second part is needed later.
       p = in_whole_blocks();
       p.blocks[4].offset = Bytes(0);
       p.blocks[3].end = StepIndex(6);
     }},
    {"time_of_the_whole", ErrorCode::wrong_time, "a time of 26, but it is 30", [](Plan& p) { p.time = Nanos(26); }},
    {"peak_of_the_whole", ErrorCode::wrong_peak, "a peak of 576, but it is 320", [](Plan& p) { p.peak = Bytes(576); }},
};

TEST(VerifyParts, HasACodeForEachWayOfBeingWrong) {
  for (const PartCase& c : kPartCases) {
    SCOPED_TRACE(c.name);
    Plan plan = right_plan_in_parts();
    c.spoil(plan);
    const Status status = verify(graph_with_axes(), plan);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, c.code) << status.error().message;
    EXPECT_THAT(status.error().message, HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace lowtide
