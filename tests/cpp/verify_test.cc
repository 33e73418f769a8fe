#include "lowtide/verify.h"

#include <algorithm>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/files.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::HasSubstr;

// A step with a bit of everything:
//
//   op 0 mm        reads w        writes h    workspace 64       buffers  0 w     resident, initial, 256 bytes
//   op 1 dropout_  reads h        writes h    random                      1 h     planned, 128 bytes
//   op 2 reduce    reads h        writes r    collective                  2 r     planned, 64 bytes, kept
//   op 3 gather                   writes s    collective                  3 s     planned, 64 bytes
//   op 4 use       reads s
//   op 5 sgd_      reads w        writes w    random
//   op 6 log                                                     edges    op 5 before op 6
//
//   offset 256 +----+                             h [0,3) at 0, r [2,7) at 128, s [3,5) at 0, workspace of step 0 at
//   192
//              | ws |
//          192 +----+----+----+----+----+----+----+
//              |         |            r           |
//          128 +----+----+----+----+----+----+----+
//              |      h       |    s    |
//            0 +----+----+----+----+----+----+----+--> step
Graph graph() {
  GraphBuilder builder;
  const BufferId w =
      unwrap(builder.add_buffer({.size = Bytes(256), .residence = Residence::resident, .name = "w", .initial = true}));
  const BufferId h = unwrap(builder.add_buffer({.size = Bytes(128), .name = "h"}));
  const BufferId r = unwrap(builder.add_buffer({.size = Bytes(64), .name = "r"}));
  const BufferId s = unwrap(builder.add_buffer({.size = Bytes(64), .name = "s"}));
  const auto read = [&](BufferId buffer) { return std::vector{unwrap(builder.add_value(buffer, "u8", {}))}; };
  unwrap(builder.add_op({.name = "mm", .reads = read(w), .writes = {h}, .workspace = Bytes(64), .cost = Nanos(9)}));
  unwrap(builder.add_op({.name = "dropout_", .reads = read(h), .writes = {h}, .flags = {.random = true}}));
  unwrap(builder.add_op({.name = "reduce", .reads = read(h), .writes = {r}, .flags = {.collective = true}}));
  unwrap(builder.add_op({.name = "gather", .writes = {s}, .flags = {.collective = true}}));
  unwrap(builder.add_op({.name = "use", .reads = read(s)}));
  unwrap(builder.add_op({.name = "sgd_", .reads = read(w), .writes = {w}, .flags = {.random = true}}));
  unwrap(builder.add_op({.name = "log"}));
  unwrap(builder.add_edge(OpId(5), OpId(6)));
  unwrap(builder.keep(r));
  return unwrap(std::move(builder).build());
}

constexpr std::uint64_t kArena = 256;

// Step i runs op `order[i]`; lives are as given, offsets as in the picture.
Plan plan_in_order(const std::vector<std::size_t>& order,
                   const std::vector<std::pair<std::size_t, std::size_t>>& lives) {
  const Graph g = graph();
  Plan plan;
  for (const std::size_t op : order) {
    plan.order.emplace_back(op);
    for (const ValueId read : g.op(OpId(op)).reads)
      plan.reads.push(BlockId(g.version(g.value(read).version).buffer.index()));
    plan.reads.close();
    for (const VersionId write : g.op(OpId(op)).writes) plan.writes.push(BlockId(g.version(write).buffer.index()));
    plan.writes.close();
    plan.workspaces.emplace_back(op == 0 ? Bytes(192) : Bytes(0));
  }
  const std::optional<Bytes> offsets[] = {std::nullopt, Bytes(0), Bytes(128), Bytes(0)};
  for (std::size_t i = 0; i < 4; ++i) {
    plan.blocks.push_back({BufferId(i), StepIndex(lives[i].first), StepIndex(lives[i].second), offsets[i]});
  }
  plan.arena = Bytes(kArena);
  plan.peak = Bytes(192);  // h and the workspace at step 0; h and r at step 2
  plan.bound = Bytes(192);
  plan.resident = Bytes(256);
  plan.time = Nanos(9);
  return plan;
}

Plan right_plan() {
  return plan_in_order({0, 1, 2, 3, 4, 5, 6}, {{0, 7}, {0, 3}, {2, 7}, {3, 5}});
}

TEST(Verify, AcceptsARightPlan) {
  const Status status = verify(graph(), right_plan());
  EXPECT_TRUE(status.ok()) << status.error().message;
}

TEST(Verify, AcceptsAPlanThatNamesItsGraph) {
  Plan plan = right_plan();
  plan.provenance.graph = fingerprint(graph());
  const Status status = verify(graph(), plan);
  EXPECT_TRUE(status.ok()) << status.error().message;
}

TEST(Verify, AcceptsAnotherOrder) {
  // w is updated as early as it can be.
  const Status status = verify(graph(), plan_in_order({0, 1, 5, 6, 2, 3, 4}, {{0, 7}, {0, 5}, {4, 7}, {5, 7}}));
  EXPECT_TRUE(status.ok()) << status.error().message;
}

struct Case {
  const char* name;
  ErrorCode code;
  const char* message;
  void (*spoil)(Plan& plan);
};

const Case kCases[] = {
    {"lists_of_another_length", ErrorCode::malformed_plan,
     "7 steps, but reads for 7, writes for 7 and workspaces for 6", [](Plan& p) { p.workspaces.pop_back(); }},
    {"op_out_of_range", ErrorCode::malformed_plan, "step 2 runs op 7, but the graph has 7",
     [](Plan& p) { p.order[2] = OpId(7); }},
    {"operands_of_another_op", ErrorCode::malformed_plan,
     "step 3 gives 0 reads and 1 writes to op 4 'use', which has 1 and 0",
     [](Plan& p) { std::swap(p.order[3], p.order[4]); }},
    {"block_out_of_range", ErrorCode::malformed_plan, "step 2 uses block 4, but the plan has 4",
     [](Plan& p) { p.reads[2][0] = BlockId(4); }},
    {"buffer_out_of_range", ErrorCode::malformed_plan, "block 3 stands in for buffer 77, but the graph has 4",
     [](Plan& p) { p.blocks[3].buffer = BufferId(77); }},
    {"op_missing", ErrorCode::op_missing, "no step runs op 6 'log'",
     [](Plan& p) { p = plan_in_order({0, 1, 2, 3, 4, 5}, {{0, 6}, {0, 3}, {2, 6}, {3, 5}}); }},
    {"collective_repeated", ErrorCode::op_repeated, "step 3 runs op 2 'reduce' again, but it talks to other ranks",
     [](Plan& p) { p = plan_in_order({0, 1, 2, 2, 3, 4, 5, 6}, {{0, 8}, {0, 4}, {2, 8}, {4, 6}}); }},
    {"update_repeated", ErrorCode::op_repeated,
     "step 6 runs op 5 'sgd_' again, but it changes buffer 0 'w', which is resident",
     [](Plan& p) { p = plan_in_order({0, 1, 2, 3, 4, 5, 5, 6}, {{0, 8}, {0, 3}, {2, 8}, {3, 5}}); }},
    {"empty_life", ErrorCode::malformed_life, "block 3 (buffer 3 's') lives [3,3) in a plan of 7 steps",
     [](Plan& p) { p.blocks[3].end = StepIndex(3); }},
    {"life_beyond_the_end", ErrorCode::malformed_life, "lives [2,8)", [](Plan& p) { p.blocks[2].end = StepIndex(8); }},
    {"resident_with_offset", ErrorCode::wrong_residence, "block 0 (buffer 0 'w') is resident but has offset 64",
     [](Plan& p) { p.blocks[0].offset = Bytes(64); }},
    {"resident_in_part", ErrorCode::wrong_residence, "is resident but lives only [1,7) of 7",
     [](Plan& p) { p.blocks[0].begin = StepIndex(1); }},
    {"resident_twice", ErrorCode::wrong_residence, "block 4 (buffer 0 'w') is resident and has a block already",
     [](Plan& p) { p.blocks.push_back(p.blocks[0]); }},
    {"resident_nowhere", ErrorCode::wrong_residence, "buffer 0 'w' is resident but has no block",
     [](Plan& p) { p.blocks[0] = p.blocks[3]; }},
    {"planned_nowhere", ErrorCode::wrong_residence, "'h') is planned but has no offset",
     [](Plan& p) { p.blocks[1].offset.reset(); }},
    {"wrong_block", ErrorCode::wrong_block, "step 4, op 4 'use' reads buffer 3 's' in block 2 (buffer 2 'r')",
     [](Plan& p) { p.reads[4][0] = BlockId(2); }},
    {"freed_early", ErrorCode::use_outside_life,
     "step 2, op 2 'reduce' reads block 1 (buffer 1 'h'), which lives [0,2)",
     [](Plan& p) { p.blocks[1].end = StepIndex(2); }},
    {"begun_late", ErrorCode::use_outside_life,
     "step 2, op 2 'reduce' writes block 2 (buffer 2 'r'), which lives [3,7)",
     [](Plan& p) { p.blocks[2].begin = StepIndex(3); }},
    {"read_before_write", ErrorCode::read_before_write,
     "step 0, op 1 'dropout_' reads version 0 of block 1 (buffer 1 'h'), which nothing has written yet",
     [](Plan& p) { p = plan_in_order({1, 0, 2, 3, 4, 5, 6}, {{0, 7}, {0, 3}, {2, 7}, {3, 5}}); }},
    {"updated_early", ErrorCode::wrong_version,
     "step 1, op 0 'mm' reads version 0 of block 0 (buffer 0 'w'), which holds version 1",
     [](Plan& p) { p = plan_in_order({5, 0, 1, 2, 3, 4, 6}, {{0, 7}, {1, 4}, {3, 7}, {4, 6}}); }},
    {"alias_dropped", ErrorCode::alias_dropped,
     "step 1, op 1 'dropout_' writes buffer 1 'h' in block 4, and also uses block 1 of it",
     [](Plan& p) {
       p.blocks.push_back({BufferId(1), StepIndex(1), StepIndex(3), Bytes(256)});
       p.writes[1][0] = BlockId(4);
       p.arena = Bytes(384);
     }},
    {"result_lost", ErrorCode::final_content_lost,
     "no block of buffer 2 'r' holds its last version, 0, when the plan ends",
     [](Plan& p) { p.blocks[2].end = StepIndex(6); }},
    {"misaligned", ErrorCode::misaligned, "block 3 (buffer 3 's') is at offset 32, not a multiple of 64",
     [](Plan& p) { p.blocks[3].offset = Bytes(32); }},
    {"workspace_misaligned", ErrorCode::misaligned, "step 0, op 0 'mm': its workspace is at offset 191",
     [](Plan& p) { p.workspaces[0] = Bytes(191); }},
    {"address_overflow", ErrorCode::address_overflow, "of 128 bytes at offset 18446744073709551552 ends beyond 64 bits",
     [](Plan& p) { p.blocks[1].offset = Bytes(~std::uint64_t{63}); }},
    {"outside_arena", ErrorCode::outside_arena, "block 3 (buffer 3 's') takes bytes [256,320) of an arena of 256",
     [](Plan& p) { p.blocks[3].offset = Bytes(256); }},
    {"workspace_outside_arena", ErrorCode::outside_arena, "its workspace takes bytes [256,320) of an arena of 256",
     [](Plan& p) { p.workspaces[0] = Bytes(256); }},
    {"overlap", ErrorCode::block_overlap,
     "step 2, op 2 'reduce': block 2 (buffer 2 'r') begins on bytes [64,128), but block 1 (buffer 1 'h') lives on "
     "[0,128) until "
     "step 3",
     [](Plan& p) { p.blocks[2].offset = Bytes(64); }},
    {"workspace_overlap", ErrorCode::workspace_overlap,
     "step 0, op 0 'mm': its workspace takes bytes [64,128), but block 1 (buffer 1 'h') lives on [0,128)",
     [](Plan& p) { p.workspaces[0] = Bytes(64); }},
    {"random_out_of_order", ErrorCode::random_out_of_order,
     "step 2, op 1 'dropout_' draws random numbers after op 5 'sgd_', which draws later in the program",
     [](Plan& p) { p = plan_in_order({0, 5, 1, 2, 3, 4, 6}, {{0, 7}, {0, 4}, {3, 7}, {4, 6}}); }},
    {"collective_out_of_order", ErrorCode::collective_out_of_order,
     "step 3, op 2 'reduce' communicates after op 3 'gather', which communicates later in the program",
     [](Plan& p) {
       p = plan_in_order({0, 1, 3, 2, 4, 5, 6}, {{0, 7}, {0, 4}, {3, 7}, {2, 5}});
       p.blocks[3].offset = Bytes(192);
     }},
    {"edge_violated", ErrorCode::edge_violated, "op 5 'sgd_' must run before op 6 'log', but they run at steps 6 and 5",
     [](Plan& p) { p = plan_in_order({0, 1, 2, 3, 4, 6, 5}, {{0, 7}, {0, 3}, {2, 7}, {3, 5}}); }},
    {"wrong_arena", ErrorCode::wrong_arena, "an arena of 257, but it is 256", [](Plan& p) { p.arena = Bytes(257); }},
    {"wrong_peak", ErrorCode::wrong_peak, "a peak of 191, but it is 192", [](Plan& p) { p.peak = Bytes(191); }},
    {"wrong_resident", ErrorCode::wrong_resident, "resident bytes of 0, but it is 256",
     [](Plan& p) { p.resident = Bytes(0); }},
    {"wrong_bound", ErrorCode::wrong_bound, "no arena is smaller than 257, but its own is 256",
     [](Plan& p) { p.bound = Bytes(257); }},
    {"wrong_time", ErrorCode::wrong_time, "a time of 8, but it is 9", [](Plan& p) { p.time = Nanos(8); }},
    {"block_made_twice", ErrorCode::block_made_twice,
     "step 1, op 0 'mm' makes block 1 (buffer 1 'h'), which holds version 0 already",
     [](Plan& p) { p = plan_in_order({0, 0, 1, 2, 3, 4, 5, 6}, {{0, 8}, {0, 4}, {3, 8}, {4, 6}}); }},
    {"other_graph", ErrorCode::other_graph, "the plan was made for another graph: its fingerprint is ",
     [](Plan& p) { p.provenance.graph = Fingerprint{0, 1}; }},
};

TEST(Verify, HasACodeForEachWayOfBeingWrong) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Plan plan = right_plan();
    c.spoil(plan);
    const Status status = verify(graph(), plan);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, c.code) << status.error().message;
    EXPECT_THAT(status.error().message, HasSubstr(c.message));
  }
  for (auto code = static_cast<unsigned>(ErrorCode::malformed_plan);
       code <= static_cast<unsigned>(ErrorCode::block_made_twice); ++code) {
    EXPECT_TRUE(std::ranges::count(kCases, static_cast<ErrorCode>(code), &Case::code) > 0) << "no case for E" << code;
  }
}

// A batch norm with dropout, let go after its first use and made again for the second:
//
//   op 0 mm      reads x              writes h            buffers  0 x       resident, initial, 64 bytes
//   op 1 norm    reads h, stats       writes y, stats              1 stats   resident, initial, 64 bytes
//   op 2 loss    reads y              writes l                     2 h, 3 y  planned, 128 bytes
//   op 3 back    reads y, l           writes x                     4 l       planned, 64 bytes
//
//   steps: 0 mm, 1 norm, 2 loss, 3 mm again into block 5, 4 norm again into block 6, 5 back
Graph graph_with_norm(OpFlags flags) {
  GraphBuilder builder;
  const auto resident = [&](const char* name) {
    return unwrap(
        builder.add_buffer({.size = Bytes(64), .residence = Residence::resident, .name = name, .initial = true}));
  };
  const BufferId x = resident("x");
  const BufferId stats = resident("stats");
  const BufferId h = unwrap(builder.add_buffer({.size = Bytes(128), .name = "h"}));
  const BufferId y = unwrap(builder.add_buffer({.size = Bytes(128), .name = "y"}));
  const BufferId l = unwrap(builder.add_buffer({.size = Bytes(64), .name = "l"}));
  const auto read = [&](BufferId buffer) { return unwrap(builder.add_value(buffer, "u8", {})); };
  unwrap(builder.add_op({.name = "mm", .reads = {read(x)}, .writes = {h}, .cost = Nanos(5)}));
  unwrap(builder.add_op(
      {.name = "norm", .reads = {read(h), read(stats)}, .writes = {y, stats}, .cost = Nanos(7), .flags = flags}));
  unwrap(builder.add_op({.name = "loss", .reads = {read(y)}, .writes = {l}}));
  unwrap(builder.add_op({.name = "back", .reads = {read(y), read(l)}, .writes = {x}}));
  return unwrap(std::move(builder).build());
}

Plan plan_with_norm_again() {
  Plan plan;
  const auto step = [&](std::size_t op, std::vector<BlockId> reads, std::vector<BlockId> writes) {
    plan.order.emplace_back(op);
    plan.reads.add(reads);
    plan.writes.add(writes);
    plan.workspaces.emplace_back(0);
  };
  const auto block = [&](std::size_t buffer, std::size_t begin, std::size_t end, std::optional<Bytes> offset) {
    plan.blocks.push_back({BufferId(buffer), StepIndex(begin), StepIndex(end), offset});
  };
  step(0, {BlockId(0)}, {BlockId(2)});
  step(1, {BlockId(2), BlockId(1)}, {BlockId(3), BlockId(1)});
  step(2, {BlockId(3)}, {BlockId(4)});
  step(0, {BlockId(0)}, {BlockId(5)});
  step(1, {BlockId(5), BlockId(1)}, {BlockId(6), BlockId(1)});
  step(3, {BlockId(6), BlockId(4)}, {BlockId(0)});
  block(0, 0, 6, {});
  block(1, 0, 6, {});
  block(2, 0, 2, Bytes(0));
  block(3, 1, 3, Bytes(128));
  block(4, 2, 6, Bytes(256));
  block(2, 3, 5, Bytes(0));
  block(3, 4, 6, Bytes(128));
  plan.arena = plan.peak = Bytes(320);  // h and y again, and l
  plan.resident = Bytes(128);
  plan.time = Nanos(24);
  return plan;
}

TEST(Verify, AcceptsOpsThatRunAgain) {
  const Graph g = graph_with_norm({.random = true, .may_skip_updates = true});
  const Plan plan = plan_with_norm_again();
  EXPECT_EQ(verify(g, plan).ok() ? "" : verify(g, plan).error().message, "");
  const Status read = verify(g, unwrap(parse_plan(plan_text(plan))));
  EXPECT_TRUE(read.ok()) << read.error().message;
}

TEST(Verify, AnOpThatRunsAgainReadsWhatItsFirstRunRead) {
  const Graph g = graph_with_norm({.may_skip_updates = true});
  Plan plan = plan_with_norm_again();
  // "back" runs before the two that run again, and changes what mm reads.
  plan.order = {OpId(0), OpId(1), OpId(2), OpId(3), OpId(0), OpId(1)};
  const Plan before = plan;
  plan.reads = plan.writes = {};
  for (const std::size_t step : {0, 1, 2, 5, 3, 4}) {
    plan.reads.add(before.reads[step]);
    plan.writes.add(before.writes[step]);
  }
  plan.reads[3][0] = BlockId(3);
  plan.blocks[3].end = StepIndex(4);
  plan.blocks[5].begin = StepIndex(4);
  plan.blocks[5].end = StepIndex(6);
  plan.blocks[6].begin = StepIndex(5);
  const Status status = verify(g, plan);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::wrong_version);
  EXPECT_THAT(status.error().message,
              HasSubstr("step 4, op 0 'mm' reads version 0 of block 0 (buffer 0 'x'), which holds version 1"));
}

TEST(Verify, SaysWhyAnOpMayNotRunAgain) {
  const std::pair<OpFlags, const char*> kReasons[] = {
      {{}, "step 4 runs op 1 'norm' again, but it changes buffer 1 'stats', which is resident"},
      {{.must_not_recompute = true, .may_skip_updates = true}, "again, but it must not be recomputed"},
      {{.collective = true, .may_skip_updates = true}, "again, but it talks to other ranks"}};
  for (const auto& [flags, message] : kReasons) {
    const Status status = verify(graph_with_norm(flags), plan_with_norm_again());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::op_repeated);
    EXPECT_THAT(status.error().message, HasSubstr(message));
  }
  GraphBuilder builder;
  const BufferId made = unwrap(builder.add_buffer({.size = Bytes(1), .residence = Residence::resident, .name = "out"}));
  unwrap(builder.add_op({.name = "make", .writes = {made}, .flags = {.may_skip_updates = true}}));
  const BufferId text = unwrap(builder.add_buffer({.size = Bytes(1), .name = "text"}));
  unwrap(builder.add_op({.name = "print", .writes = {text}}));
  unwrap(builder.add_op({.name = "check"}));
  unwrap(builder.add_edge(OpId(0), OpId(1)));
  const Graph g = unwrap(std::move(builder).build());
  const auto message_of_again = [&](std::size_t op) {
    Plan plan;
    plan.order = {OpId(op), OpId(op)};
    for (int step = 0; step < 2; ++step) {
      plan.reads.close();
      if (op < 2) plan.writes.push(BlockId(op));
      plan.writes.close();
      plan.workspaces.emplace_back(0);
    }
    plan.blocks.push_back({made, StepIndex(0), StepIndex(2), {}});
    plan.blocks.push_back({text, StepIndex(0), StepIndex(2), Bytes(0)});
    return verify(g, plan).error().message;
  };
  EXPECT_THAT(message_of_again(0), HasSubstr("it makes buffer 0 'out', which is resident"));
  EXPECT_THAT(message_of_again(1), HasSubstr("an edge orders it"));
  EXPECT_THAT(message_of_again(2), HasSubstr("it writes no planned buffer"));
}

TEST(Verify, WhatHasNoBytesHasNoPlace) {
  GraphBuilder builder;
  const BufferId empty = unwrap(builder.add_buffer({.size = Bytes(0), .name = "empty"}));
  unwrap(builder.add_op({.name = "make", .writes = {empty}}));
  const Graph g = unwrap(std::move(builder).build());
  Plan made = unwrap(plan(g));
  made.blocks[0].offset = Bytes(77);
  made.workspaces[0] = Bytes(99);
  EXPECT_TRUE(verify(g, made).ok());
}

}  // namespace
}  // namespace lowtide
