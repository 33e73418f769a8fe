// A server whose blocks are released by another thread: what the thread sanitizer watches.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "replay/script.h"
#include "replay/server.h"

namespace lowtide::replay {
namespace {

TEST(ReplayThreads, BlocksAreReleasedByAnyThread) {
  constexpr std::int64_t kBlocks = 64;
  constexpr int kIterations = 500;
  std::vector<Script::Request> requests;
  for (std::int64_t i = 0; i < 2 * kBlocks; ++i) requests.push_back({64, i % kBlocks * 64});
  const auto script = std::make_shared<Script>(requests);
  Server server;
  std::vector<std::int64_t> memory(kBlocks);  // a word of each block, written by whoever has it
  std::vector<std::atomic<bool>> given(kBlocks);
  std::atomic<bool> done = false;

  std::jthread other([&] {
    while (!done) {
      for (std::int64_t block = 0; block < kBlocks; ++block) {
        const auto index = static_cast<std::size_t>(block);
        if (!given[index].load(std::memory_order_acquire)) continue;
        memory[index] += 1;
        given[index].store(false, std::memory_order_relaxed);
        server.release_from_elsewhere(block * 64);
      }
    }
  });
  std::int64_t served = 0;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    server.begin({&script, 1}, Suits::same_size);
    for (const Script::Request& request : requests) {
      const std::int64_t offset = server.serve(request.bytes);
      if (offset < 0) continue;
      ++served;
      const auto index = static_cast<std::size_t>(offset / 64);
      memory[index] += 1;
      if (served % 3 == 0) {
        server.release(offset);
      } else {
        given[index].store(true, std::memory_order_release);
      }
    }
    server.end();
  }
  done = true;
  EXPECT_GE(served, kBlocks);
}

}  // namespace
}  // namespace lowtide::replay
