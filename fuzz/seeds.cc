// seeds DIRECTORY: small graphs with their plans, for fuzz_files.cc to start from; some graphs and plans compressed.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "lowtide/files.h"
#include "lowtide/plan.h"
#include "random_graph.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kGraphs = 20;
constexpr std::uint64_t kCompressed = 2;  // few: unpacking is slow under the sanitizers

void write_pair(const Graph& graph, const std::filesystem::path& path) {
  std::ofstream(path, std::ios::binary) << graph_text(graph) << '\0' << plan_text(unwrap(plan(graph)));
}

void write_seeds(const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  for (std::uint64_t seed = 0; seed < kGraphs; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const std::string name = "random-" + std::to_string(seed);
    write_pair(graph, directory / name);
    if (seed >= kCompressed) continue;
    unwrap(save_graph(graph, directory / (name + ".graph.zst")));
    unwrap(save_plan(graph, unwrap(plan(graph)), directory / (name + ".plan.zst")));
  }
  write_pair(training_graph(40), directory / "training");
}

}  // namespace
}  // namespace lowtide

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  lowtide::write_seeds(argv[1]);
  return 0;
}
