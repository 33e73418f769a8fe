// When tasks can run and buffers are held, against random orders.
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "order/spans.h"
#include "random_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using testing::ElementsAre;

// Ops that each write a buffer of their own, of so many bytes, and read those of others.
struct Maker {
  std::uint64_t size;
  std::vector<std::size_t> reads = {};
  std::uint64_t workspace = 0;
};

Graph graph_of(std::span<const Maker> makers) {
  GraphBuilder builder;
  std::vector<BufferId> made;
  for (const Maker& maker : makers) {
    const std::string name = "op" + std::to_string(made.size());
    OpSpec op{.name = name, .workspace = Bytes(maker.workspace)};
    for (const std::size_t read : maker.reads) op.reads.push_back(unwrap(builder.add_value(made[read], "uint8", {})));
    made.push_back(unwrap(builder.add_buffer({.size = Bytes(maker.size), .name = name})));
    op.writes = {made.back()};
    unwrap(builder.add_op(op));
  }
  return unwrap(std::move(builder).build());
}

TEST(Spans, Diamond) {
  const Tasks tasks = to_tasks(graph_of(std::vector<Maker>{{8}, {16, {0}}, {32, {0}}, {64, {1, 2}}}));
  const Spans multi = to_spans(tasks, StepWidth::multi);
  EXPECT_THAT(multi.run, ElementsAre(StepRange{0, 2}, StepRange{1, 3}, StepRange{1, 3}, StepRange{2, 4}));
  const Spans single = to_spans(tasks, StepWidth::single);
  EXPECT_THAT(single.run, ElementsAre(StepRange{0, 1}, StepRange{1, 3}, StepRange{1, 3}, StepRange{3, 4}));
  // Of 0, used by 1 and 2; of 1, used by 3; of 2, used by 3; of 3, used by none.
  EXPECT_THAT(single.useful, ElementsAre(StepRange{0, 3}, StepRange{1, 4}, StepRange{1, 4}, StepRange{3, 4}));
  EXPECT_THAT(single.needed, ElementsAre(StepRange{1, 2}, StepRange{3, 4}, StepRange{3, 4}, StepRange{4, 4}));
}

TEST(Spans, EveryOrderIsWithinThem) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const Tasks tasks = to_tasks(graph);
    const std::vector<OpId> order = random_order(graph, random);
    std::vector<std::size_t> step_of(order.size());
    for (std::size_t step = 0; step < order.size(); ++step) step_of[order[step].index()] = step;
    for (const StepWidth width : {StepWidth::single, StepWidth::multi}) {
      const Spans spans = to_spans(tasks, width);
      for (Task task = 0; task < tasks.count(); ++task) {
        ASSERT_TRUE(spans.run[task].contains(step_of[task])) << "seed " << seed << ", op " << task;
      }
      for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
        const std::size_t begin = step_of[tasks.users[buffer].front()];
        std::size_t end = tasks.kept[buffer] ? order.size() : begin;
        for (const Task user : tasks.users[buffer]) end = std::max(end, step_of[user] + 1);
        ASSERT_TRUE(spans.useful[buffer].begin <= begin && end <= spans.useful[buffer].end) << "seed " << seed;
        for (std::size_t step = spans.needed[buffer].begin; step < spans.needed[buffer].end; ++step) {
          ASSERT_TRUE(begin < step && step < end) << "seed " << seed << ", buffer " << buffer;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lowtide
