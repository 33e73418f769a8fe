// reader GRAPH PLAN: reads both, verifies, computes the timeline, and prints what that cost (see reader_process.h).
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>

#include "lowtide/files.h"
#include "lowtide/lifetimes.h"
#include "lowtide/verify.h"
#include "unwrap.h"

namespace lowtide {
namespace {

template <typename Pass>
auto timed(double& seconds, Pass pass) {
  const std::clock_t start = std::clock();
  auto result = pass();
  seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  return result;
}

// ru_maxrss would not do: it counts what the parent had when it forked.
double most_memory() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmHWM:") continue;
    double kibibytes = 0;
    status >> kibibytes;
    return 1024 * kibibytes;
  }
  std::abort();
}

int read(const char* graph_path, const char* plan_path) {
  double read_graph = 0;
  double read_plan = 0;
  double verifying = 0;
  double timeline = 0;
  const auto start = std::chrono::steady_clock::now();
  const Graph graph = timed(read_graph, [&] { return unwrap(load_graph(graph_path)); });
  const Plan plan = timed(read_plan, [&] { return unwrap(load_plan(plan_path)); });
  unwrap(timed(verifying, [&] { return verify(graph, plan); }));
  const Lifetimes lives = timed(timeline, [&] { return unwrap(lifetimes(graph, plan.order)); });
  const std::chrono::duration<double> clock = std::chrono::steady_clock::now() - start;
  std::printf("%g %g %g %g %g %.0f %.0f\n", read_graph, read_plan, verifying, timeline, clock.count(), most_memory(),
              static_cast<double>(lives.peak.count()));
  return 0;
}

}  // namespace
}  // namespace lowtide

int main(int argc, char** argv) {
  return argc == 3 ? lowtide::read(argv[1], argv[2]) : 2;
}
