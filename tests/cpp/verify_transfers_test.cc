// Plans with tiers and transfers: what verify() accepts of them, and what it says of the others.
#include <limits>
#include <tuple>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/verify.h"
#include "unwrap.h"
#include "verify/clocks.h"

namespace lowtide {
namespace {

using ::testing::HasSubstr;

// A weight that lives in a file, and an activation that is there for a while:
//
//   op 0 make   reads w       writes a         buffers  0 w   resident, initial, 64 bytes, at home in tier 1
//   op 1 use    reads a       writes b                  1 a   planned, 128 bytes
//   op 2 fold   reads b                                 2 b   planned, 64 bytes
//   op 3 big                  writes c                  3 c   planned, 128 bytes
//   op 4 log
//   op 5 sgd_   reads a, w    writes w         each op takes 50 ns
//
//   offset 192 +----+---------+         +---------+                blocks of w   0 home, 1 [0,1), 7 [4,6)
//              | w  |    b    |         |         |                          a   2 [0,3), 3 in tier 1 [1,6), 4 [4,6)
//          128 +----+---------+----+    |    a    |
//              |              |    |    |         |
//           64 |      a       | c  |    +---------+
//              |              |    |    |    w    |
//            0 +----+----+----+----+----+----+----+--> step
//                   |- store -|         |load|         transfers   0 load w, 1 store a, 2 load a, 3 load w, 4 store w
//
// The link stores a byte in 1 ns and loads it in half of that, after 5 ns each time:
//
//   load w   0 to 37     step 0   37 to 87      store a    87 to 220     step 1   87 to 137     step 2  137 to 187
//                        step 3  220 to 270     load a    270 to 339     step 4  270 to 320     load w  339 to 376
//                        step 5  376 to 426     store w   426 to 495
Graph graph_with_tiers() {
  GraphBuilder builder;
  const BufferId w =
      unwrap(builder.add_buffer({.size = Bytes(64), .residence = Residence::resident, .name = "w", .initial = true}));
  const BufferId a = unwrap(builder.add_buffer({.size = Bytes(128), .name = "a"}));
  const BufferId b = unwrap(builder.add_buffer({.size = Bytes(64), .name = "b"}));
  const BufferId c = unwrap(builder.add_buffer({.size = Bytes(128), .name = "c"}));
  const auto read = [&](BufferId buffer) { return unwrap(builder.add_value(buffer, "u8", {})); };
  unwrap(builder.add_op({.name = "make", .reads = {read(w)}, .writes = {a}, .cost = Nanos(50)}));
  unwrap(builder.add_op({.name = "use", .reads = {read(a)}, .writes = {b}, .cost = Nanos(50)}));
  unwrap(builder.add_op({.name = "fold", .reads = {read(b)}, .cost = Nanos(50)}));
  unwrap(builder.add_op({.name = "big", .writes = {c}, .cost = Nanos(50)}));
  unwrap(builder.add_op({.name = "log", .cost = Nanos(50)}));
  unwrap(builder.add_op({.name = "sgd_", .reads = {read(a), read(w)}, .writes = {w}, .cost = Nanos(50)}));
  return unwrap(std::move(builder).build());
}

Transfer transfer(std::size_t from, std::size_t to, std::size_t issue, std::size_t wait) {
  return {BlockId(from), BlockId(to), StepIndex(issue), StepIndex(wait)};
}

void add_step(Plan& plan, std::size_t op, const std::vector<BlockId>& reads, const std::vector<BlockId>& writes) {
  plan.order.emplace_back(op);
  plan.reads.add(reads);
  plan.writes.add(writes);
  plan.workspaces.emplace_back(0);
}

void add_block(Plan& plan, std::size_t buffer, std::size_t begin, std::size_t end, std::optional<Bytes> offset,
               std::uint32_t tier = 0) {
  plan.blocks.push_back({BufferId(buffer), StepIndex(begin), StepIndex(end), offset, tier});
}

Plan plan_with_tiers() {
  Plan plan;
  add_step(plan, 0, {BlockId(1)}, {BlockId(2)});
  add_step(plan, 1, {BlockId(2)}, {BlockId(5)});
  add_step(plan, 2, {BlockId(5)}, {});
  add_step(plan, 3, {}, {BlockId(6)});
  add_step(plan, 4, {}, {});
  add_step(plan, 5, {BlockId(4), BlockId(7)}, {BlockId(7)});
  add_block(plan, 0, 0, 6, {}, 1);
  add_block(plan, 0, 0, 1, Bytes(128));
  add_block(plan, 1, 0, 3, Bytes(0));
  add_block(plan, 1, 1, 6, Bytes(0), 1);
  add_block(plan, 1, 4, 6, Bytes(64));
  add_block(plan, 2, 1, 3, Bytes(128));
  add_block(plan, 3, 3, 4, Bytes(0));
  add_block(plan, 0, 4, 6, Bytes(0));
  plan.transfers = {transfer(0, 1, 0, 0), transfer(2, 3, 1, 3), transfer(3, 4, 4, 5), transfer(0, 7, 4, 5),
                    transfer(7, 0, 6, 6)};
  const Link link{
      .store_per_second = Bytes(1'000'000'000), .load_per_second = Bytes(2'000'000'000), .latency = Nanos(5)};
  plan.tiers = {{.name = "disk", .link = link, .arena = Bytes(128), .resident = Bytes(64)}};
  plan.arena = plan.peak = plan.bound = Bytes(192);
  plan.time = Nanos(495);
  return plan;
}

std::string refusal_of(const Graph& g, const Plan& plan) {
  const Status status = verify(g, plan);
  return status.ok() ? "" : status.error().message;
}

TEST(VerifyTransfers, AcceptsARightPlan) {
  EXPECT_EQ(refusal_of(graph_with_tiers(), plan_with_tiers()), "");
}

TEST(VerifyTransfers, AcceptsAStoreThatIsWaitedForAtOnce) {
  Plan plan = plan_with_tiers();
  plan.transfers[1] = transfer(2, 3, 1, 1);  // step 1 waits for it: 87 to 220, and steps 1 and 2 come later
  plan.time = Nanos(495 + 100);
  EXPECT_EQ(refusal_of(graph_with_tiers(), plan), "");
}

struct WrongTransfer {
  const char* name;
  ErrorCode code;
  const char* message;
  void (*spoil)(Plan& plan);
};

const WrongTransfer kWrongTransfers[] = {
    {"no_such_tier", ErrorCode::malformed_plan, "block 3 is in tier 2, but the plan has 1",
     [](Plan& p) { p.blocks[3].tier = 2; }},
    {"no_such_tier_by_far", ErrorCode::malformed_plan, "block 3 is in tier 4294967295",
     [](Plan& p) { p.blocks[3].tier = 4294967295; }},
    {"link_that_moves_nothing", ErrorCode::malformed_plan,
     "tier 1 'disk' stores 1000000000 and loads 0 bytes a second; both must be above 0",
     [](Plan& p) { p.tiers[0].link.load_per_second = Bytes(0); }},
    {"slot_without_offset", ErrorCode::wrong_residence, "block 3 (buffer 1 'a') is planned but has no offset",
     [](Plan& p) { p.blocks[3].offset.reset(); }},
    {"two_homes", ErrorCode::wrong_residence, "block 8 (buffer 0 'w') is resident and has a block already",
     [](Plan& p) { p.blocks.push_back(p.blocks[0]); }},
    {"home_in_memory", ErrorCode::wrong_residence, "block 1 (buffer 0 'w') is resident but has offset 128",
     [](Plan& p) { p.blocks[0].tier = 0; }},
    {"no_home", ErrorCode::wrong_residence, "block 0 (buffer 0 'w') is resident but has offset 0",
     [](Plan& p) { p.blocks[0].offset = Bytes(0); }},
    {"resident_in_a_slot", ErrorCode::wrong_residence,
     "is resident and has its home in tier 1 'disk', but has offset 128 in tier 1 'disk'",
     [](Plan& p) { p.blocks[1].tier = 1; }},
    {"block_out_of_range", ErrorCode::malformed_transfer, "transfer 2 names block 8, but the plan has 8",
     [](Plan& p) { p.transfers[2].to = BlockId(8); }},
    {"other_buffer", ErrorCode::malformed_transfer,
     "transfer 2 goes from block 3 (buffer 1 'a') to block 7 (buffer 0 'w'), which stands in for another buffer",
     [](Plan& p) { p.transfers[2].to = BlockId(7); }},
    {"itself", ErrorCode::malformed_transfer,
     "goes from block 4 (buffer 1 'a') to block 4 (buffer 1 'a'), but both are in memory",
     [](Plan& p) { p.transfers[2].from = BlockId(4); }},
    {"within_tiers", ErrorCode::malformed_transfer, "but neither is in memory",
     [](Plan& p) { p.transfers[2].to = BlockId(3); }},
    {"waits_before_it_begins", ErrorCode::malformed_transfer,
     "transfer 1 begins before step 1 and is waited for before step 0 in a plan of 6 steps",
     [](Plan& p) { p.transfers[1].wait = StepIndex(0); }},
    {"waits_after_the_end", ErrorCode::malformed_transfer, "is waited for before step 7 in a plan of 6 steps",
     [](Plan& p) { p.transfers[4].wait = StepIndex(7); }},
    {"out_of_order", ErrorCode::malformed_transfer,
     "transfer 2 begins before step 1 as a store, earlier than the one listed before it",
     [](Plan& p) { std::swap(p.transfers[1], p.transfers[2]); }},
    {"load_before_store", ErrorCode::malformed_transfer,
     "transfer 4 begins before step 4 as a store, earlier than the one listed before it",
     [](Plan& p) { p.transfers[4] = transfer(2, 3, 4, 4); }},
    {"stored_as_it_begins", ErrorCode::use_outside_life,
     "transfer 1 goes from block 2 (buffer 1 'a') from step 1 to step 3, but it lives [1,3)",
     [](Plan& p) { p.blocks[2].begin = StepIndex(1); }},
    {"stored_too_long", ErrorCode::use_outside_life, "goes from block 2 (buffer 1 'a') from step 1 to step 4",
     [](Plan& p) { p.transfers[1].wait = StepIndex(4); }},
    {"slot_begins_late", ErrorCode::use_outside_life, "goes to block 3 (buffer 1 'a') from step 1 to step 3",
     [](Plan& p) { p.blocks[3].begin = StepIndex(2); }},
    {"slot_ends_at_the_wait", ErrorCode::use_outside_life,
     "transfer 2 goes from block 3 (buffer 1 'a') from step 4 to step 5, but it lives [1,5)",
     [](Plan& p) { p.blocks[3].end = StepIndex(5); }},
    {"loaded_too_early", ErrorCode::use_outside_life, "goes to block 4 (buffer 1 'a') from step 4 to step 5",
     [](Plan& p) { p.blocks[4].begin = StepIndex(5); }},
    {"gone_when_it_is_loaded", ErrorCode::use_outside_life,
     "goes to block 7 (buffer 0 'w') from step 4 to step 5, but it lives [4,5)",
     [](Plan& p) { p.blocks[7].end = StepIndex(5); }},
    {"stores_nothing", ErrorCode::read_before_write,
     "before step 4, transfer 1 loads block 3 (buffer 1 'a'), which holds nothing",
     [](Plan& p) { p.transfers.erase(p.transfers.begin() + 1); }},
    {"not_loaded", ErrorCode::read_before_write,
     "step 5, op 5 'sgd_' reads version 0 of block 4 (buffer 1 'a'), which nothing has written yet",
     [](Plan& p) { p.transfers.erase(p.transfers.begin() + 2); }},
    {"operand_in_a_tier", ErrorCode::wrong_tier, "step 5, op 5 'sgd_' reads block 3 (buffer 1 'a') in tier 1 'disk'",
     [](Plan& p) { p.reads[5][0] = BlockId(3); }},
    {"read_in_flight", ErrorCode::in_flight,
     "step 5, op 5 'sgd_' reads block 7 (buffer 0 'w'), which a transfer still fills",
     [](Plan& p) { p.transfers[3].wait = StepIndex(6); }},
    {"written_in_flight", ErrorCode::in_flight,
     "step 5, op 5 'sgd_' writes block 7 (buffer 0 'w'), which a transfer still reads",
     [](Plan& p) {
       p.transfers[3].wait = StepIndex(4);
       p.transfers[4].issue = StepIndex(5);
     }},
    {"stored_in_flight", ErrorCode::in_flight,
     "before step 5, transfer 4 stores block 7 (buffer 0 'w'), which a transfer still fills",
     [](Plan& p) { p.transfers[4].issue = StepIndex(5); }},
    {"filled_twice", ErrorCode::in_flight,
     "before step 4, transfer 3 fills block 4 (buffer 1 'a'), which another transfer still fills",
     [](Plan& p) { p.transfers[3] = p.transfers[2]; }},
    {"filled_while_read", ErrorCode::in_flight,
     "before step 5, transfer 4 fills block 0 (buffer 0 'w'), which another transfer still reads",
     [](Plan& p) {
       p.blocks[1].offset = Bytes(192);
       p.blocks[1].end = StepIndex(6);
       p.arena = Bytes(256);
       p.transfers.insert(p.transfers.begin() + 4, transfer(1, 0, 5, 5));
     }},
    {"update_not_stored", ErrorCode::final_content_lost,
     "no block of buffer 0 'w' holds its last version, 1, when the plan ends", [](Plan& p) { p.transfers.pop_back(); }},
    {"slot_misaligned", ErrorCode::misaligned, "block 3 (buffer 1 'a') is at offset 32, not a multiple of 64",
     [](Plan& p) { p.blocks[3].offset = Bytes(32); }},
    {"slot_outside_its_arena", ErrorCode::outside_arena,
     "block 3 (buffer 1 'a') takes bytes [64,192) of an arena of 128 in tier 1 'disk'",
     [](Plan& p) { p.blocks[3].offset = Bytes(64); }},
    {"slots_overlap", ErrorCode::block_overlap,
     "step 2, op 2 'fold': block 8 (buffer 2 'b') begins on bytes [64,128) in tier 1 'disk', but block 3 (buffer 1 "
     "'a') "
     "lives on [0,128) until step 6",
     [](Plan& p) { p.blocks.push_back({BufferId(2), StepIndex(2), StepIndex(3), Bytes(64), 1}); }},
    {"wrong_arena", ErrorCode::wrong_arena, "an arena in tier 1 'disk' of 192, but it is 128",
     [](Plan& p) { p.tiers[0].arena = Bytes(192); }},
    {"wrong_resident", ErrorCode::wrong_resident, "resident bytes in tier 1 'disk' of 0, but it is 64",
     [](Plan& p) { p.tiers[0].resident = Bytes(0); }},
    {"wrong_time", ErrorCode::wrong_time, "a time of 300, but it is 495", [](Plan& p) { p.time = Nanos(300); }},
};

TEST(VerifyTransfers, HasACodeForEachWayOfBeingWrong) {
  for (const WrongTransfer& c : kWrongTransfers) {
    SCOPED_TRACE(c.name);
    Plan plan = plan_with_tiers();
    c.spoil(plan);
    const Status status = verify(graph_with_tiers(), plan);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, c.code) << status.error().message;
    EXPECT_THAT(status.error().message, HasSubstr(c.message));
  }
}

// relu makes y in the bytes of x, which are being stored.
TEST(VerifyTransfers, WhatIsBeingStoredIsNotTakenOver) {
  GraphBuilder builder;
  const BufferId x = unwrap(builder.add_buffer({.size = Bytes(64), .name = "x"}));
  const BufferId y = unwrap(builder.add_buffer({.size = Bytes(64), .name = "y"}));
  unwrap(builder.add_op({.name = "make", .writes = {x}}));
  unwrap(builder.add_op({.name = "relu", .reads = {unwrap(builder.add_value(x, "u8", {}))}, .writes = {y}}));
  unwrap(builder.add_op({.name = "log"}));
  unwrap(builder.add_reuse(OpId(1), x, y));
  const Graph g = unwrap(std::move(builder).build());
  Plan plan;
  add_step(plan, 0, {}, {BlockId(0)});
  add_step(plan, 1, {BlockId(0)}, {BlockId(1)});
  add_step(plan, 2, {}, {});
  add_block(plan, 0, 0, 2, Bytes(0));
  add_block(plan, 1, 1, 3, Bytes(0));
  add_block(plan, 0, 1, 3, Bytes(0), 1);
  plan.tiers = {{.name = "host", .link = {Bytes(64), Bytes(1)}, .arena = Bytes(64)}};
  plan.arena = plan.peak = Bytes(64);
  plan.time = Nanos(1'000'000'000);
  plan.transfers = {transfer(0, 2, 1, 1)};
  EXPECT_EQ(refusal_of(g, plan), "");
  plan.transfers = {transfer(0, 2, 1, 2)};
  EXPECT_THAT(refusal_of(g, plan),
              HasSubstr("step 1, op 1 'relu': block 1 (buffer 1 'y') takes over the bytes of block 0 "
                        "(buffer 0 'x'), which a transfer still reads"));
  plan.transfers = {transfer(0, 2, 2, 2)};
  EXPECT_EQ(refusal_of(g, plan), "before step 2, transfer 0 stores block 0 (buffer 0 'x'), which holds nothing");
}

TEST(VerifyClocks, ADuplexLinkHasAClockForEachDirection) {
  for (const bool duplex : {false, true}) {
    Plan plan;
    plan.tiers = {{.name = "host", .link = {Bytes(1'000'000'000), Bytes(500'000'000), Nanos(7), duplex}}};
    Clocks clocks(plan);
    EXPECT_EQ(clocks.begin_store(1, Bytes(100)), Nanos(107));
    EXPECT_EQ(clocks.begin_store(1, Bytes(100)), Nanos(214));
    clocks.run(Nanos(50));
    EXPECT_EQ(clocks.begin_load(1, Bytes(100)), Nanos((duplex ? 50 : 214) + 207));
    clocks.wait_until(Nanos(40));
    EXPECT_EQ(clocks.now(), Nanos(50));
    clocks.wait_until(Nanos(214));
    EXPECT_EQ(clocks.now(), Nanos(214));
  }
}

TEST(VerifyClocks, RoundUpAndSaturate) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const std::tuple<std::uint64_t, std::uint64_t, std::uint64_t> kTimes[] = {
      {1, 3, 333'333'334},
      {0, 1, 0},
      {kMost, kMost, 1'000'000'000},
      {kMost - 1, kMost, 1'000'000'000},
      {1, kMost, 1},
      {18'446'744'073, 1, 18'446'744'073'000'000'000U},
      {18'446'744'074, 1, kMost},
      {kMost, 1, kMost},
  };
  for (const auto& [size, rate, nanos] : kTimes) {
    Plan plan;
    plan.tiers = {{.name = "host", .link = {Bytes(rate), Bytes(rate)}}};
    EXPECT_EQ(Clocks(plan).begin_store(1, Bytes(size)), Nanos(nanos)) << size << " at " << rate;
  }
}

}  // namespace
}  // namespace lowtide
