// seeds DIRECTORY: what the fuzzers start from. For fuzz_files.cc small graphs with their plans, some of them
// with swaps, in parts or compressed; for fuzz_buffers.cc the buffers of the same graphs, as CSV and as JSON.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "draft.h"
#include "lowtide/buffers.h"
#include "lowtide/files.h"
#include "lowtide/plan.h"
#include "random_graph.h"
#include "splits.h"
#include "swaps.h"
#include "training_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kGraphs = 20;
constexpr std::uint64_t kCompressed = 2;  // few: unpacking is slow under the sanitizers

void write_pair(const Graph& graph, const Plan& plan, const std::filesystem::path& path) {
  std::ofstream(path, std::ios::binary) << graph_text(graph) << '\0' << plan_text(plan);
}

void write_buffers(const Graph& graph, const std::filesystem::path& path) {
  std::vector<BufferRow> rows;
  for (const Block& block : unwrap(plan(graph)).blocks) {
    const Bytes size = graph.buffer(block.buffer).size;
    rows.push_back({std::to_string(rows.size()), block.begin.value(), block.end.value(), size});
    if (rows.size() % 3 == 0) rows.back().alignment = kAlignment;
    if (rows.size() % 5 == 0) rows.back().offset = block.offset;
  }
  for (const BufferFormat format : {BufferFormat::csv, BufferFormat::json}) {
    std::ofstream(path.string() + (format == BufferFormat::csv ? ".csv" : ".json")) << buffers_text(rows, format);
  }
}

void write_seeds(const std::filesystem::path& root) {
  const std::filesystem::path directory = root / "files";
  const std::filesystem::path buffers = root / "buffers";
  std::filesystem::create_directories(directory);
  std::filesystem::create_directories(buffers);
  for (std::uint64_t seed = 0; seed < kGraphs; ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random, {.axes = seed % 2 == 0});
    const std::string name = "random-" + std::to_string(seed);
    write_pair(graph, unwrap(plan(graph)), directory / name);
    write_pair(graph, finish(draft_with_swaps(graph, random)), directory / (name + "-swaps"));
    if (graph.has_axes()) write_pair(graph, finish(draft_with_parts(graph, random)), directory / (name + "-parts"));
    write_buffers(graph, buffers / name);
    if (seed >= kCompressed) continue;
    unwrap(save_graph(graph, directory / (name + ".graph.zst")));
    unwrap(save_plan(graph, unwrap(plan(graph)), directory / (name + ".plan.zst")));
  }
  const Graph training = training_graph(40);
  write_pair(training, unwrap(plan(training)), directory / "training");
}

}  // namespace
}  // namespace lowtide

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  lowtide::write_seeds(argv[1]);
  return 0;
}
