#include "lowtide/eager.h"

#include "eager/allocator_settings.h"
#include "gtest/gtest.h"
#include "unwrap.h"

namespace lowtide {
namespace {

// In MiB, all of them: weight 10, state 20, made 30, gradient 10, scratch 40.
Graph step() {
  GraphBuilder builder;
  const auto buffer = [&](std::uint64_t size, Role role, bool resident, bool initial = false) {
    return unwrap(builder.add_buffer({.size = Bytes(size * kMiB),
                                      .residence = resident ? Residence::resident : Residence::planned,
                                      .role = role,
                                      .initial = initial}));
  };
  const auto value = [&](BufferId id) { return unwrap(builder.add_value(id, "u8", {})); };
  const BufferId weight = buffer(10, Role::parameter, true, true);
  const BufferId state = buffer(20, Role::optimizer_state, true);
  const BufferId made = buffer(30, Role::activation, false);
  const BufferId gradient = buffer(10, Role::gradient, true);
  const BufferId scratch = buffer(40, Role::temporary, false);
  unwrap(builder.add_op({.name = "forward", .reads = {value(weight)}, .writes = {made}}));
  unwrap(builder.add_op({.name = "backward", .reads = {value(made)}, .writes = {gradient}}));
  unwrap(builder.add_op({.name = "update", .reads = {value(gradient)}, .writes = {scratch}}));
  unwrap(builder.add_op({.name = "apply", .reads = {value(scratch)}, .writes = {weight, state}}));
  return unwrap(std::move(builder).build());
}

// Weight, state, gradient and scratch are alive together, from the second iteration on: 80. In the first, weight 10,
// made 30, gradient 10 and scratch 40 have segments of their own; the state finds room where made was, and leaves 10 of
// it. In the second, made finds room where scratch was, the gradient in these 10, and scratch where it was before: 90.
TEST(Eager, GradientsLiveUntilTheyAreZeroed) {
  const EagerMemory memory = unwrap(run_eager(step()));
  EXPECT_EQ(memory.resident.count(), 30 * kMiB);
  EXPECT_EQ(memory.allocator.requested.peak.count(), 80 * kMiB);
  EXPECT_EQ(memory.allocator.reserved.peak.count(), 90 * kMiB);
  EXPECT_DOUBLE_EQ(memory.allocator.fragmentation(), 1 - 80.0 / 90);
  EXPECT_FALSE(memory.stop);
}

// With 80 MiB, weight 10, made 30 and gradient 10 leave no room for scratch: made is given back, then 40 fit, and so
// does the state, into the last 20. Later iterations find room in these segments. With 79, the state does not fit.
TEST(Eager, StopsWhereADeviceIsFull) {
  const EagerMemory fits = unwrap(run_eager(step(), {.capacity = Bytes(80 * kMiB)}));
  EXPECT_FALSE(fits.stop);
  EXPECT_EQ(fits.allocator.retries, 1u);
  EXPECT_EQ(fits.allocator.reserved.peak.count(), 80 * kMiB);
  const EagerMemory full = unwrap(run_eager(step(), {.capacity = Bytes(79 * kMiB)}));
  ASSERT_TRUE(full.stop);
  EXPECT_EQ(full.stop->iteration, 0u);
  EXPECT_EQ(full.stop->op, OpId(3));
  EXPECT_EQ(full.stop->out_of_memory.requested.count(), 20 * kMiB);
  EXPECT_EQ(full.stop->out_of_memory.free.count(), 19 * kMiB);
  const EagerMemory none = unwrap(run_eager(step(), {.capacity = Bytes(9 * kMiB)}));
  ASSERT_TRUE(none.stop);
  EXPECT_FALSE(none.stop->op) << "the weight does not fit";
}

// In MiB of the one range of addresses. First iteration: weight [0, 10), made [10, 40), gradient [40, 50), and scratch
// [50, 90), the state where made was, [10, 30). All from there on is free when the second begins: made [30, 60),
// gradient [60, 70). Then 30 are free on either side, and scratch needs [70, 110): six pages of 20.
TEST(Eager, TakesSettings) {
  const EagerMemory memory = unwrap(run_eager(step(), {.allocator = {.expandable_segments = true}}));
  EXPECT_EQ(memory.allocator.reserved.peak.count(), 120 * kMiB);
  EXPECT_EQ(run_eager(step(), {.allocator = {.large_segment_size = Bytes(1)}}).error().code,
            ErrorCode::invalid_setting);
}

// A workspace is there while its op runs, and what is kept until the next iteration begins: the most is 20 + 30.
TEST(Eager, WorkspacesAndWhatIsKept) {
  GraphBuilder builder;
  const BufferId a = unwrap(builder.add_buffer({.size = Bytes(20 * kMiB)}));
  const BufferId kept = unwrap(builder.add_buffer({.size = Bytes(10 * kMiB)}));
  unwrap(builder.add_op({.name = "a", .writes = {a}, .workspace = Bytes(30 * kMiB)}));
  unwrap(builder.add_op({.name = "b", .reads = {unwrap(builder.add_value(a, "u8", {}))}, .writes = {kept}}));
  unwrap(builder.add_op({.name = "c", .workspace = Bytes(10 * kMiB)}));
  unwrap(builder.keep(kept));
  const EagerMemory memory = unwrap(run_eager(unwrap(std::move(builder).build())));
  EXPECT_EQ(memory.allocator.requested.peak.count(), 60 * kMiB) << "what the iteration before has kept is still there";
  EXPECT_EQ(memory.allocator.requested.now.count(), 10 * kMiB);
}

// The next batch is made before the one before it is let go; only then are gradients zeroed.
TEST(Eager, BatchesComeBeforeTheirTurn) {
  GraphBuilder builder;
  const BufferId batch = unwrap(builder.add_buffer(
      {.size = Bytes(10 * kMiB), .residence = Residence::resident, .role = Role::input, .initial = true}));
  const BufferId gradient =
      unwrap(builder.add_buffer({.size = Bytes(30 * kMiB), .residence = Residence::resident, .role = Role::gradient}));
  unwrap(builder.add_op({.name = "f", .reads = {unwrap(builder.add_value(batch, "u8", {}))}, .writes = {gradient}}));
  const Graph graph = unwrap(std::move(builder).build());
  const EagerMemory once = unwrap(run_eager(graph, {.iterations = 1}));
  EXPECT_EQ(once.allocator.requested.peak.count(), 40 * kMiB);
  const EagerMemory twice = unwrap(run_eager(graph, {.iterations = 2}));
  EXPECT_EQ(twice.allocator.requested.peak.count(), 50 * kMiB);
  EXPECT_EQ(twice.allocator.requested.now.count(), 40 * kMiB);
  const EagerMemory full = unwrap(run_eager(graph, {.capacity = Bytes(45 * kMiB), .iterations = 2}));
  ASSERT_TRUE(full.stop);
  EXPECT_EQ(full.stop->iteration, 1u);
  EXPECT_FALSE(full.stop->op);
}

// A gradient that is added to is there from the beginning, and stays.
TEST(Eager, GradientsFromBeforeStay) {
  GraphBuilder builder;
  const BufferId gradient = unwrap(builder.add_buffer(
      {.size = Bytes(10 * kMiB), .residence = Residence::resident, .role = Role::gradient, .initial = true}));
  const BufferId more = unwrap(builder.add_buffer({.size = Bytes(10 * kMiB)}));
  unwrap(builder.add_op({.name = "backward", .writes = {more}}));
  const std::vector<ValueId> reads = {unwrap(builder.add_value(gradient, "u8", {})),
                                      unwrap(builder.add_value(more, "u8", {}))};
  unwrap(builder.add_op({.name = "add_", .reads = reads, .writes = {gradient}}));
  const EagerMemory memory = unwrap(run_eager(unwrap(std::move(builder).build())));
  EXPECT_EQ(memory.allocator.requested.peak.count(), 20 * kMiB);
  EXPECT_EQ(memory.allocator.requested.now.count(), 10 * kMiB);
  EXPECT_EQ(memory.resident.count(), 0u) << "gradients are told apart";
}

}  // namespace
}  // namespace lowtide
