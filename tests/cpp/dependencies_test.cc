#include "graph/dependencies.h"

#include <random>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "random_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// w is read by two ops, then updated, then read again.
TEST(Dependencies, ReadersComeBeforeTheNextWrite) {
  GraphBuilder builder;
  const BufferId w =
      unwrap(builder.add_buffer({.size = Bytes(8), .residence = Residence::resident, .name = "w", .initial = true}));
  const ValueId old = unwrap(builder.add_value(w, "f", {}));
  unwrap(builder.add_op({.name = "read", .reads = {old}}));
  unwrap(builder.add_op({.name = "read", .reads = {old}}));
  unwrap(builder.add_op({.name = "update", .reads = {old}, .writes = {w}}));
  unwrap(builder.add_op({.name = "read", .reads = {unwrap(builder.add_value(w, "f", {}))}}));
  const Dependencies found = dependencies(unwrap(std::move(builder).build()));
  EXPECT_THAT(found.predecessors[0], IsEmpty());
  EXPECT_THAT(found.predecessors[1], IsEmpty());
  EXPECT_THAT(found.predecessors[2], ElementsAre(OpId(0), OpId(1)));
  EXPECT_THAT(found.predecessors[3], ElementsAre(OpId(2)));
  EXPECT_THAT(found.successors[2], ElementsAre(OpId(3)));
}

TEST(Dependencies, SequencesAndEdges) {
  GraphBuilder builder;
  unwrap(builder.add_op({.name = "dropout", .flags = {.random = true}}));
  unwrap(builder.add_op({.name = "all_reduce", .flags = {.collective = true}}));
  unwrap(builder.add_op({.name = "dropout", .flags = {.random = true}}));
  unwrap(builder.add_op({.name = "all_gather", .flags = {.collective = true}}));
  unwrap(builder.add_edge(OpId(0), OpId(3)));
  const Dependencies found = dependencies(unwrap(std::move(builder).build()));
  EXPECT_THAT(found.predecessors[1], IsEmpty());
  EXPECT_THAT(found.predecessors[2], ElementsAre(OpId(0)));
  EXPECT_THAT(found.predecessors[3], ElementsAre(OpId(0), OpId(1)));
}

// By the definition: two ops are ordered if one writes a buffer that the other touches, or a flag or an edge says so.
// Of those, dependencies() may leave out what follows from others, so both are compared after closing them.
std::set<std::pair<std::size_t, std::size_t>> closed(std::set<std::pair<std::size_t, std::size_t>> pairs,
                                                     std::size_t ops) {
  for (std::size_t k = 0; k < ops; ++k) {
    for (std::size_t i = 0; i < ops; ++i) {
      for (std::size_t j = 0; j < ops; ++j) {
        if (pairs.contains({i, k}) && pairs.contains({k, j})) pairs.insert({i, j});
      }
    }
  }
  return pairs;
}

TEST(Dependencies, AgreesWithTheDefinition) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const auto touches = [&](OpId id, BufferId buffer, bool only_writes) {
      const Op op = graph.op(id);
      for (const VersionId write : op.writes) {
        if (graph.version(write).buffer == buffer) return true;
      }
      for (const ValueId read : op.reads) {
        if (!only_writes && graph.version(graph.value(read).version).buffer == buffer) return true;
      }
      return false;
    };
    std::set<std::pair<std::size_t, std::size_t>> expected;
    for (OpId a(0); a.index() < graph.num_ops(); a = a.next()) {
      for (OpId b = a.next(); b.index() < graph.num_ops(); b = b.next()) {
        bool ordered = (graph.op(a).flags.random && graph.op(b).flags.random) ||
                       (graph.op(a).flags.collective && graph.op(b).flags.collective);
        for (BufferId buffer(0); buffer.index() < graph.num_buffers(); buffer = buffer.next()) {
          ordered = ordered || (touches(a, buffer, true) && touches(b, buffer, false)) ||
                    (touches(a, buffer, false) && touches(b, buffer, true));
        }
        if (ordered) expected.insert({a.index(), b.index()});
      }
    }
    for (const Edge& edge : graph.edges()) expected.insert({edge.before.index(), edge.after.index()});

    const Dependencies found = dependencies(graph);
    std::set<std::pair<std::size_t, std::size_t>> pairs;
    std::size_t successors = 0;
    for (std::size_t op = 0; op < graph.num_ops(); ++op) {
      for (const OpId before : found.predecessors[op])
        ASSERT_TRUE(pairs.insert({before.index(), op}).second) << "listed twice";
      for (const OpId after : found.successors[op]) successors += found.predecessors[after.index()].empty() ? 0 : 1;
    }
    EXPECT_EQ(successors, pairs.size());
    ASSERT_EQ(closed(pairs, graph.num_ops()), closed(expected, graph.num_ops())) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lowtide
