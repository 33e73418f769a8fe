// What may be used from several threads at once, used so: the tests that the thread sanitizer watches.
#include <atomic>
#include <new>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "graph/reachability.h"
#include "gtest/gtest.h"
#include "lowtide/lifetimes.h"
#include "lowtide/plan.h"
#include "lowtide/summary.h"
#include "lowtide/verify.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

constexpr std::size_t kThreads = 4;
constexpr std::size_t kOps = 2000;

// What one thread finds out about a graph, and how its plan came out.
struct Findings {
  std::string summary;
  std::string plan_summary;
  std::vector<std::optional<Bytes>> offsets;
  std::vector<Bytes> live;
  bool verified = false;

  bool operator==(const Findings&) const = default;
};

Findings look_at(const Graph& graph) {
  const Plan made = unwrap(plan(graph));
  Findings findings{
      summary(graph), summary(made), {}, unwrap(lifetimes(graph, made.order)).live, verify(graph, made).ok()};
  for (const Block& block : made.blocks) findings.offsets.push_back(block.offset);
  return findings;
}

TEST(Threads, WhatOneThrowsIsThrownWhenAllHaveEnded) {
  for (std::size_t failing = 0; failing < kThreads; ++failing) {
    std::atomic<std::size_t> ended = 0;
    const auto work = [&](std::size_t i) {
      if (i == failing) throw std::bad_alloc();
      ++ended;
    };
    EXPECT_THROW(in_parallel(kThreads, work), std::bad_alloc);
    EXPECT_EQ(ended, kThreads - 1);
  }
}

TEST(Threads, OneGraphIsPlannedAndVerifiedByMany) {
  const Graph graph = training_graph(kOps);
  const Findings expected = look_at(graph);
  EXPECT_TRUE(expected.verified);
  std::vector<Findings> found(kThreads);
  in_parallel(kThreads, [&](std::size_t i) { found[i] = look_at(graph); });
  for (const Findings& findings : found) EXPECT_EQ(findings, expected);
}

TEST(Threads, OnePlanIsVerifiedByMany) {
  const Graph graph = training_graph(kOps);
  const Plan made = unwrap(plan(graph));
  std::vector<char> verified(kThreads);
  in_parallel(kThreads, [&](std::size_t i) { verified[i] = verify(graph, made).ok() ? 1 : 0; });
  EXPECT_EQ(verified, std::vector<char>(kThreads, 1));
}

TEST(Threads, BlocksOfReachabilityAreSweptSideBySide) {
  const Dependencies depends = dependencies(training_graph(kOps));
  for (const Side side : {Side::ancestors, Side::descendants}) {
    EXPECT_EQ(count_relatives(depends, side, kThreads), count_relatives(depends, side, 1));
  }
}

TEST(Threads, ReachabilityIsAskedByMany) {
  const Dependencies depends = dependencies(training_graph(kOps));
  const Reachability reachability(depends);
  const std::vector<std::uint32_t> ancestors = count_relatives(depends, Side::ancestors);
  std::vector<std::vector<std::uint32_t>> counts(kThreads, std::vector<std::uint32_t>(kOps));
  in_parallel(kThreads, [&](std::size_t i) {
    for (std::size_t b = i; b < kOps; b += 50) {
      for (std::size_t a = 0; a < kOps; ++a) counts[i][b] += reachability.precedes(OpId(a), OpId(b)) ? 1 : 0;
    }
  });
  for (std::size_t i = 0; i < kThreads; ++i) {
    for (std::size_t b = i; b < kOps; b += 50) EXPECT_EQ(counts[i][b], ancestors[b]) << "op " << b;
  }
}

}  // namespace
}  // namespace lowtide
