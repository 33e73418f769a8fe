// Spoiled graph and plan files, plain and compressed: each must be refused with a clean error or, where the damage did
// no harm, give an object that plan() and verify() can take; soon, and without taking much memory.
//
//   LOWTIDE_FULL=1   20,000 files instead of 2,000, and each length of those that are cut
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>

#include "base/words.h"
#include "counted_memory.h"
#include "draft.h"
#include "file_damages.h"
#include "full_size.h"
#include "gtest/gtest.h"
#include "lowtide/files.h"
#include "lowtide/plan.h"
#include "lowtide/verify.h"
#include "processor_time.h"
#include "random_graph.h"
#include "splits.h"
#include "swaps.h"
#include "unwrap.h"

namespace lowtide {
namespace {

namespace fs = std::filesystem;

// What a file may cost. Sanitizers make everything several times as slow, and memory is not counted under them.
constexpr double kSeconds = kSanitized ? 4.0 : 0.5;
std::size_t allowed_bytes(std::size_t file_size) {
  return (std::size_t{64} << 20) + 20 * file_size;
}

bool is_clean(const Error& error) {
  const auto code = static_cast<unsigned>(error.code);
  const bool of_graph = code >= 101 && code <= 111;
  const bool of_file = code == 402 || (code >= 601 && code <= 603);
  const bool printable = std::ranges::all_of(error.message, [](char c) { return c >= ' '; });
  return (of_graph || of_file) && printable && error.message.size() < 1000;
}

// Gives files to the readers, one after another, and remembers the worst.
class Ordeal {
 public:
  // Is the file refused?
  bool refuses_plan(const std::string& name, const std::string& bytes, const Graph& graph) {
    return refuses(name, bytes, [&] {
      const Result<Plan> read = load_plan(path_);
      if (read.ok()) (void)verify(graph, *read).ok();
      return read.ok() ? std::optional<Error>() : read.error();
    });
  }

  bool refuses_graph(const std::string& name, const std::string& bytes) {
    return refuses(name, bytes, [&] {
      const Result<Graph> read = load_graph(path_);
      if (read.ok() && read->num_ops() <= 1000) {
        const Result<Plan> planned = plan(*read);
        EXPECT_TRUE(planned.ok() && verify(*read, *planned).ok());
      }
      return read.ok() ? std::optional<Error>() : read.error();
    });
  }

  std::size_t files() const { return files_; }
  std::size_t refused() const { return refused_; }

  ~Ordeal() {
    fs::remove(path_);
    std::printf(
        "%zu files, %zu refused; slowest %.1f ms (%s); most memory %.1f MB (%s), at most %.0f %% of what is allowed\n",
        files_, refused_, 1e3 * seconds_, slowest_.c_str(), static_cast<double>(bytes_) / 1e6, largest_.c_str(),
        100 * share_);
  }

 private:
  template <typename Take>
  bool refuses(const std::string& name, const std::string& bytes, Take take) {
    SCOPED_TRACE(name);
    std::ofstream(path_, std::ios::binary) << bytes;
    std::optional<Error> error;
    const double start = processor_seconds();
    const std::size_t memory = most_bytes_during([&] { error = take(); });
    const double seconds = processor_seconds() - start;
    const std::size_t allowed = allowed_bytes(bytes.size());
    EXPECT_LE(memory, allowed);
    EXPECT_LE(seconds, kSeconds);
    EXPECT_TRUE(!error || is_clean(*error)) << error->message;
    if (seconds > seconds_) seconds_ = seconds, slowest_ = name;
    if (memory > bytes_) bytes_ = memory, largest_ = name;
    share_ = std::max(share_, static_cast<double>(memory) / static_cast<double>(allowed));
    ++files_;
    if (error) ++refused_;
    return error.has_value();
  }

  fs::path path_ = fs::path(::testing::TempDir()) / words("hostile-", std::random_device{}());
  std::size_t files_ = 0;
  std::size_t refused_ = 0;
  double seconds_ = 0;
  std::string slowest_;
  std::size_t bytes_ = 0;
  std::string largest_;
  double share_ = 0;  // of the memory that the file was allowed
};

// Of each version of the format.
Plan any_plan(const Graph& graph, std::mt19937_64& random) {
  switch (random() % 3) {
    case 0:
      return unwrap(plan(graph));
    case 1:
      return finish(draft_with_swaps(graph, random));
    default:
      return finish(draft_with_parts(graph, random));
  }
}

TEST(HostileFiles, SpoiledOnesAreRefusedOrHarmless) {
  const std::size_t files = full_size() ? 20'000 : kSanitized ? 1'000 : 2'000;
  Ordeal ordeal;
  for (std::size_t seed = 0; seed < files && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random, {.axes = seed % 2 == 0});
    const bool of_plan = random() % 2 == 0;
    const std::string text = of_plan ? plan_text(any_plan(graph, random)) : graph_text(graph);
    const SpoiledFile file = seed % 100 == 99 ? spoiled_to_bomb(text, random) : spoiled(text, random);
    const std::string name = words("seed ", seed, of_plan ? " plan" : " graph", file.damage);
    of_plan ? ordeal.refuses_plan(name, file.bytes, graph) : ordeal.refuses_graph(name, file.bytes);
  }
  EXPECT_GT(ordeal.refused(), files / 2);
  EXPECT_LT(ordeal.refused(), files);
}

// At each single byte, or every third one: within numbers, words, strings, escapes, headers, blocks and checksums.
TEST(HostileFiles, TruncatedOnesAreRefused) {
  std::mt19937_64 random(5);
  Graph graph = random_graph(random, {.axes = true});
  Draft parts = draft_with_parts(graph, random);
  while (std::ranges::none_of(parts.blocks, [](const Block& block) { return block.part.count > 1; })) {
    graph = random_graph(random, {.axes = true});
    parts = draft_with_parts(graph, random);
  }
  const std::string graph_json = graph_text(graph);
  const std::string plan_json = plan_text(unwrap(plan(graph)));
  const std::string swaps_json = plan_text(finish(draft_with_swaps(graph, random)));
  const std::string parts_json = plan_text(finish(parts));
  Ordeal ordeal;
  const auto cut_everywhere = [&](const std::string& whole, bool of_plan) {
    // Without the line's end a text is whole.
    const std::size_t needed = whole.size() - (whole.ends_with('\n') ? 1 : 0);
    for (std::size_t size = 0; size < needed && !HasFailure(); size += full_size() ? 1 : 3) {
      const std::string name = words(of_plan ? "plan" : "graph", " cut to ", size, " of ", whole.size(), " bytes");
      const std::string bytes = whole.substr(0, size);
      EXPECT_TRUE(of_plan ? ordeal.refuses_plan(name, bytes, graph) : ordeal.refuses_graph(name, bytes)) << name;
    }
  };
  cut_everywhere(graph_json, false);
  cut_everywhere(plan_json, true);
  cut_everywhere(swaps_json, true);
  cut_everywhere(parts_json, true);
  cut_everywhere(compressed(graph_json, true), false);
  cut_everywhere(compressed(plan_json, true), true);
}

}  // namespace
}  // namespace lowtide
