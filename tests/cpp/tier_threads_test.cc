// Several threads that store to and load from one file: what the thread sanitizer watches.
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tier/tier_file.h"

namespace lowtide::tier {
namespace {

TEST(TierThreads, ShareAFile) {
  constexpr std::size_t kWords = 20'000;
  constexpr auto kBytes = static_cast<std::int64_t>(kWords * sizeof(int));
  for (const Way way : {Way::best, Way::threads}) {
    TierOptions options;
    options.way = way;
    options.chunk_bytes = 16384;
    const std::shared_ptr<TierFile> file = TierFile::open(std::filesystem::temp_directory_path(), options);
    const auto work = [&file](int seed) {
      for (int round = 0; round < 20; ++round) {
        const std::int64_t offset = file->reserve(kBytes);
        std::vector<int> from(kWords, seed + round);
        std::vector<int> to(kWords);
        const Ticket stored = file->store(from.data(), offset, kBytes);
        const Ticket loaded = file->load(to.data(), offset, kBytes);
        file->wait(stored);
        from.assign(kWords, 0);
        file->wait(loaded);
        EXPECT_EQ(to, std::vector<int>(kWords, seed + round));
        std::byte* home = file->map(offset, kBytes);
        EXPECT_EQ(TierFile::find(home)->offset, offset);
        file->unmap(home, offset, kBytes);
        file->release(offset, kBytes);
      }
    };
    std::jthread first(work, 1000);
    std::jthread second(work, 2000);
    work(3000);
  }
}

}  // namespace
}  // namespace lowtide::tier
