#include "tier/measure_link.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "tier/chunk.h"
#include "tier/tier_file.h"

namespace lowtide::tier {
namespace {

constexpr std::int64_t kLarge = std::int64_t{64} << 20;
constexpr int kRounds = 5;
constexpr int kSmallRounds = 33;

using Seconds = std::chrono::duration<double>;

struct Freed {
  void operator()(std::byte* memory) const { operator delete(memory, std::align_val_t{kDirectAlignment}); }
};
using Memory = std::unique_ptr<std::byte, Freed>;

// Bytes that no disk can store in less space.
Memory make_noise() {
  Memory memory(static_cast<std::byte*>(operator new(kLarge, std::align_val_t{kDirectAlignment})));
  auto* words = reinterpret_cast<std::uint64_t*>(memory.get());
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < kLarge / sizeof(std::uint64_t); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    words[i] = state ^ (state >> 29);
  }
  return memory;
}

template <typename Action>
double median_seconds(int rounds, Action action) {
  std::vector<double> found;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    action();
    found.push_back(Seconds(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(found.begin(), found.begin() + rounds / 2, found.end());
  return found[static_cast<std::size_t>(rounds / 2)];
}

Bytes rate(double seconds) {
  return Bytes(static_cast<std::uint64_t>(static_cast<double>(kLarge) / seconds));
}

Link measure(TierFile& file) {
  const Memory memory = make_noise();
  const std::int64_t offset = file.reserve(kLarge);
  const auto store = [&](std::int64_t bytes) { file.wait(file.store(memory.get(), offset, bytes)); };
  const auto load = [&](std::int64_t bytes) { file.wait(file.load(memory.get(), offset, bytes)); };
  store(kLarge);  // the first time, file systems note what is written
  Link link;
  link.store_per_second = rate(median_seconds(kRounds, [&] { store(kLarge); }));
  link.load_per_second = rate(median_seconds(kRounds, [&] { load(kLarge); }));
  const double small = median_seconds(kSmallRounds, [&] { load(kDirectAlignment); });
  link.latency = Nanos(static_cast<std::uint64_t>(small * 1e9));
  return link;
}

}  // namespace

Link measure_link(const std::string& folder) {
  static std::mutex mutex;
  static std::map<dev_t, Link> known;
  const std::shared_ptr<TierFile> file = TierFile::open(folder);
  struct stat found = {};
  fstat(file->number(), &found);
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = known.try_emplace(found.st_dev);
  if (!is_new) return place->second;
  try {
    return place->second = measure(*file);
  } catch (...) {
    known.erase(place);
    throw;
  }
}

}  // namespace lowtide::tier
