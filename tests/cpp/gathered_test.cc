// Uses of what may leave, brought together.
#include "swap/gathered.h"

#include <random>
#include <string>
#include <vector>

#include "expect_order.h"
#include "gtest/gtest.h"
#include "lowtide/lifetimes.h"
#include "order/algorithms.h"
#include "random_graph.h"
#include "swaps.h"
#include "unwrap.h"

namespace lowtide {
namespace {

Swap swap_of(const Graph& graph) {
  return {.name = "disk", .link = {Bytes(1), Bytes(1)}, .may_leave = resident_buffers(graph), .least = Bytes(1)};
}

// The picture in the header: the state of one weight, whose update runs in parts.
class Update : public ::testing::Test {
 protected:
  BufferId state(std::string_view name) {
    return unwrap(builder_.add_buffer({.size = Bytes(100),
                                       .residence = Residence::resident,
                                       .role = Role::optimizer_state,
                                       .name = name,
                                       .initial = true}));
  }
  BufferId made(std::uint64_t bytes) { return unwrap(builder_.add_buffer({.size = Bytes(bytes)})); }
  void add(std::string_view name, const std::vector<BufferId>& reads, BufferId write) {
    OpSpec spec{.name = name, .writes = {write}};
    for (const BufferId id : reads) spec.reads.push_back(unwrap(builder_.add_value(id, "float32", {})));
    unwrap(builder_.add_op(spec));
  }

  // With `others`, each of so many bytes, between the first part and the rest.
  Graph graph(std::uint64_t bytes_of_others) {
    const BufferId m = state("m"), v = state("v"), p = state("p"), batch = state("batch");
    const BufferId grad = made(100), root = made(100);
    add("v.mul_", {v}, v);
    add("backward", {batch}, grad);
    add("m.lerp_", {m, grad}, m);
    for (int i = 0; i < 3; ++i) {
      const BufferId other = made(bytes_of_others);
      add("other", {batch}, other);
      add("end of other", {other}, batch);
    }
    add("v.addcmul_", {v, grad}, v);
    add("sqrt", {v}, root);
    add("p.addcdiv_", {p, m, root}, p);
    return unwrap(std::move(builder_).build());
  }

  GraphBuilder builder_;
};

std::vector<std::string> names_of(const Graph& graph, const Order& order) {
  std::vector<std::string> names;
  for (const OpId id : order) names.emplace_back(graph.op(id).name);
  return names;
}

TEST_F(Update, RunsAtOnce) {
  const Graph step = graph(/*bytes_of_others=*/200);
  const std::vector<std::string> expected = {"backward", "m.lerp_",      "v.mul_", "v.addcmul_",
                                             "sqrt",     "p.addcdiv_",   "other",  "end of other",
                                             "other",    "end of other", "other",  "end of other"};
  EXPECT_EQ(names_of(step, gathered(step, first_to_last(step.num_ops()), swap_of(step))), expected);
}

// The root and the gradient together would be the peak.
TEST_F(Update, WaitsWhereItDoesNotFit) {
  const Graph step = graph(/*bytes_of_others=*/10);
  const Order order = gathered(step, first_to_last(step.num_ops()), swap_of(step));
  const std::vector<std::string> names = names_of(step, order);
  EXPECT_EQ(unwrap(lifetimes(step, order)).peak, unwrap(lifetimes(step, first_to_last(step.num_ops()))).peak);
  EXPECT_EQ(names[1], "m.lerp_");
  EXPECT_EQ(names[2], "other");
}

TEST(Gathered, IsAnOrderWithNoHigherPeak) {
  std::size_t changed = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const Tasks tasks = to_tasks(graph);
    const Order before = random_order(graph, random);
    const Order after = gathered(graph, before, swap_of(graph));
    expect_order(tasks, after, std::to_string(seed));
    EXPECT_LE(unwrap(lifetimes(graph, after)).peak, unwrap(lifetimes(graph, before)).peak);
    changed += after == before ? 0 : 1;
  }
  EXPECT_GT(changed, 100U);
}

}  // namespace
}  // namespace lowtide
