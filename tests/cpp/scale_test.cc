// A large graph through every pass that must stay near-linear.
//
//   LOWTIDE_SCALE   how many ops (default 100000; 1000000 is what the design promises)
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>

#include "graph/dependencies.h"
#include "graph/words.h"
#include "gtest/gtest.h"
#include "lowtide/layout.h"
#include "lowtide/lifetimes.h"
#include "lowtide/order.h"
#include "lowtide/verify.h"
#include "unwrap.h"

namespace lowtide {
namespace {

std::size_t wanted_ops() {
  const char* text = std::getenv("LOWTIDE_SCALE");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 100'000;
}

template <typename Function>
auto timed(const char* what, Function function) {
  const auto start = std::chrono::steady_clock::now();
  auto result = function();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("%-28s %8.3f s\n", what, taken.count());
  return result;
}

// Forward ops that each keep a result, then backward ops that use them up from the last to the first and update the
// weights; every tenth op also works in place. About three reads an op.
Graph training_step(std::size_t ops) {
  const std::size_t forward = ops / 2;
  std::mt19937_64 random(7);
  GraphBuilder builder;
  std::vector<BufferId> weights;
  for (std::size_t i = 0; i < 1000; ++i) {
    weights.push_back(unwrap(builder.add_buffer({.size = Bytes(4096),
                                                 .residence = Residence::resident,
                                                 .role = Role::parameter,
                                                 .name = words("weight.", i),
                                                 .initial = true})));
  }
  std::vector<BufferId> results;
  const auto value = [&](BufferId buffer) { return unwrap(builder.add_value(buffer, "float32", {})); };
  for (std::size_t i = 0; i < ops; ++i) {
    const bool backward = i >= forward;
    const std::string name = words(backward ? "gradient." : "activation.", i);
    const BufferId weight = weights[(backward ? ops - 1 - i : i) * weights.size() / (forward + 1) % weights.size()];
    const BufferId made = unwrap(builder.add_buffer({.size = Bytes(64 + random() % 4000), .name = name}));
    OpSpec spec{.name = backward ? "aten::backward" : "aten::forward", .writes = {made}, .cost = Nanos(100)};
    spec.reads.push_back(value(weight));
    if (!results.empty()) spec.reads.push_back(value(results.back()));
    if (backward) spec.reads.push_back(value(results[ops - 1 - i]));
    if (!backward && i > 2) spec.reads.push_back(value(results[i - 2]));
    if (i % 10 == 3) spec.writes.push_back(results.back());
    if (i % 7 == 0) spec.workspace = Bytes(1000);
    spec.flags.random = i % 50 == 0;
    unwrap(builder.add_op(spec));
    results.push_back(made);
    if (backward && i % 500 == 499) {
      unwrap(builder.add_op({.name = "aten::sub_", .reads = {value(weight), value(made)}, .writes = {weight}}));
    }
  }
  return unwrap(std::move(builder).build());
}

// Each item above all before it: no packing, but right.
Plan stacked_plan(const Graph& graph, const Lifetimes& lives, const Order& order) {
  Plan plan;
  plan.order = order;
  plan.peak = plan.bound = lives.peak;
  plan.resident = graph.resident_bytes();
  Bytes top;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Life life = lives.lives[id.index()];
    plan.blocks.push_back({id, life.begin, life.end, std::nullopt});
    if (!graph.buffer(id).planned()) continue;
    plan.blocks.back().offset = align_up(top);
    top = align_up(top) + graph.buffer(id).size;
  }
  const Bytes above = align_up(top);
  for (const OpId id : order) {
    const Op op = graph.op(id);
    for (const ValueId read : op.reads)
      plan.reads.push(BlockId(graph.version(graph.value(read).version).buffer.index()));
    plan.reads.close();
    for (const VersionId write : op.writes) plan.writes.push(BlockId(graph.version(write).buffer.index()));
    plan.writes.close();
    plan.workspaces.push_back(above);
    if (op.workspace > Bytes(0)) top = std::max(top, above + op.workspace);
    plan.time += op.cost;
  }
  plan.arena = top;
  return plan;
}

double peak_rss_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1024.0 * 1024.0);
}

TEST(Scale, EveryPassIsNearLinear) {
  const std::size_t ops = wanted_ops();
  const Graph graph = timed("build", [&] { return training_step(ops); });
  const double graph_gib = peak_rss_gib();
  const Dependencies depends = timed("dependencies", [&] { return dependencies(graph); });
  const Order order = unwrap(unwrap(find_order("program")).run(graph));
  const Lifetimes lives = timed("lifetimes", [&] { return unwrap(lifetimes(graph, order)); });
  const Plan plan = timed("stacked plan", [&] { return stacked_plan(graph, lives, order); });
  const Status status = timed("verify", [&] { return verify(graph, plan); });
  EXPECT_TRUE(status.ok()) << status.error().message;
  std::printf("%zu ops, %zu buffers, %zu values, %zu edges; most memory %.2f GiB, after building %.2f GiB\n",
              graph.num_ops(), graph.num_buffers(), graph.num_values(), depends.predecessors.num_items(),
              peak_rss_gib(), graph_gib);
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(graph_gib, 1.0);
#endif
}

TEST(Scale, GreedyBySizeOfTwentyThousand) {
  std::mt19937_64 random(11);
  std::vector<LayoutItem> items;
  for (std::size_t i = 0; i < 20'000; ++i) {
    const std::size_t begin = random() % 40'000;
    const std::size_t length = random() % 4 == 0 ? random() % 20'000 : random() % 40;
    items.push_back({StepIndex(begin), StepIndex(begin + 1 + length), Bytes(1 + random() % 1'000'000)});
  }
  const Layout layout =
      timed("greedy_by_size of 20000", [&] { return unwrap(lay_out(items, "greedy_by_size")).layout; });
  EXPECT_GT(layout.arena, Bytes(0));
}

}  // namespace
}  // namespace lowtide
