// Training steps of a thousand to a million ops through every pass that must stay near-linear.
//
//   LOWTIDE_FULL=1   up to 1,000,000 ops instead of 100,000 (with sanitizers 10,000)
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/words.h"
#include "full_size.h"
#include "graph/dependencies.h"
#include "gtest/gtest.h"
#include "lowtide/files.h"
#include "lowtide/layout.h"
#include "lowtide/plan.h"
#include "processor_time.h"
#include "reader_process.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

constexpr double limit(double value) {
  return kSanitized ? std::numeric_limits<double>::infinity() : value;
}
constexpr double kMostSeconds = limit(10);
constexpr double kMostBytes = limit(1.5 * 1024 * 1024 * 1024);
constexpr double kSteepest = limit(1.15);  // of the logarithm of time over the logarithm of size
constexpr double kMostSecondsToPlan = limit(60);

constexpr std::size_t kLargest = kSanitized ? 2'000 : 100'000;

template <typename Pass>
auto timed(double& seconds, Pass pass) {
  const double start = processor_seconds();
  auto result = pass();
  seconds = processor_seconds() - start;
  return result;
}

class Folder {
 public:
  Folder() : path_(fs::path(::testing::TempDir()) / words("scale-", std::random_device{}())) {
    fs::create_directory(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

// The fastest of several processes, since noise only ever adds time; the smaller the graph, the more of them.
ReaderCost fastest_reader(const fs::path& graph, const fs::path& plan, std::size_t ops) {
  const std::size_t runs = kSanitized ? 1 : ops <= 10'000 ? 15 : ops <= 100'000 ? 5 : 3;
  std::vector<ReaderCost> costs;
  for (std::size_t i = 0; i < runs; ++i) costs.push_back(run_reader(graph, plan));
  return *std::ranges::min_element(costs, {}, &ReaderCost::passes);
}

TEST(Scale, ReadingVerifyingAndTheTimelineAreNearLinear) {
  const Folder folder;
  const std::size_t largest = full_size() ? 1'000'000 : kLargest;
  std::printf("     ops          file   MB  graph s   plan s  verify s  timeline s    all s  clock s  memory MiB\n");
  for (const std::string ending : {".json", ".json.zst"}) {
    double first_seconds = 0;
    double seconds = 0;
    for (std::size_t ops = 1000; ops <= largest; ops *= 10) {
      const fs::path graph_path = folder / ("graph" + ending).c_str();
      const fs::path plan_path = folder / ("plan" + ending).c_str();
      Bytes peak;
      {
        const Graph graph = training_graph(ops);
        const Plan made = unwrap(plan(graph));
        unwrap(save_graph(graph, graph_path));
        unwrap(save_verified_plan(made, plan_path));
        peak = made.peak;
      }
      const ReaderCost cost = fastest_reader(graph_path, plan_path, ops);
      EXPECT_EQ(cost.peak, static_cast<double>(peak.count()));
      const auto file_bytes = static_cast<double>(fs::file_size(graph_path) + fs::file_size(plan_path));
      std::printf("%8zu %13s %4.0f %8.3f %8.3f  %8.3f  %10.4f %8.3f %8.3f  %10.0f\n", ops, ending.c_str(),
                  file_bytes / 1e6, cost.read_graph, cost.read_plan, cost.verify, cost.timeline, cost.passes(),
                  cost.clock, cost.memory / (1 << 20));
      seconds = cost.passes();
      if (first_seconds == 0) first_seconds = seconds;
      EXPECT_LE(cost.clock, kMostSeconds);
      EXPECT_LE(cost.memory, kMostBytes);
    }
    const double slope = std::log(seconds / first_seconds) / std::log(static_cast<double>(largest) / 1000);
    std::printf("%s: slope %.3f from 1000 to %zu ops\n", ending.c_str(), slope, largest);
    EXPECT_LE(slope, kSteepest);
  }
}

TEST(Scale, PlanningEndsSoon) {
  const std::size_t largest = full_size() ? 1'000'000 : kLargest;
  std::printf("     ops  build s  dependencies s   plan s  fragmentation\n");
  for (std::size_t ops = 1000; ops <= largest; ops *= 10) {
    double building = 0;
    double depending = 0;
    double planning = 0;
    const Graph graph = timed(building, [&] { return training_graph(ops); });
    timed(depending, [&] { return dependencies(graph); });
    const Plan made = timed(planning, [&] { return unwrap(plan(graph)); });
    std::printf("%8zu %8.3f  %14.3f %8.3f  %12.2f%%  %s\n", ops, building, depending, planning,
                100 * made.fragmentation(), made.provenance.layout.c_str());
    EXPECT_LE(planning, kMostSecondsToPlan);
  }
}

TEST(Scale, GreedyBySizeOfTwentyThousand) {
  std::mt19937_64 random(11);
  std::vector<LayoutItem> items;
  for (std::size_t i = 0; i < 20'000; ++i) {
    const std::size_t begin = random() % 40'000;
    const std::size_t length = random() % 4 == 0 ? random() % 20'000 : random() % 40;
    items.push_back({StepIndex(begin), StepIndex(begin + 1 + length), Bytes(1 + random() % 1'000'000)});
  }
  double seconds = 0;
  const Layout layout = timed(seconds, [&] { return unwrap(lay_out(items, {.algorithm = "greedy_by_size"})).layout; });
  std::printf("greedy_by_size of 20000 items: %.3f s\n", seconds);
  EXPECT_GT(layout.arena, Bytes(0));
  EXPECT_LE(seconds, kMostSecondsToPlan);
}

}  // namespace
}  // namespace lowtide
