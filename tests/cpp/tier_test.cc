// A file to swap to: bytes come back as they were stored, or there is an error.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tier/checksum.h"
#include "tier/file_error.h"
#include "tier/slots.h"
#include "tier/tier_file.h"

namespace lowtide::tier {
namespace {

constexpr std::int64_t kPage = 4096;

TEST(Slots, AreReused) {
  Slots slots;
  EXPECT_EQ(slots.take(8192), 0);
  EXPECT_EQ(slots.take(4096), 8192);
  EXPECT_EQ(slots.take(8192), 12288);
  slots.give_back(8192, 4096);
  EXPECT_EQ(slots.take(8192), 20480);
  EXPECT_EQ(slots.take(4096), 8192);
  slots.give_back(0, 8192);
  slots.give_back(12288, 8192);
  slots.give_back(8192, 4096);  // joins both
  EXPECT_EQ(slots.take(20480), 0);
  slots.give_back(20480, 8192);
  EXPECT_EQ(slots.end(), 20480);
  slots.give_back(0, 20480);
  EXPECT_EQ(slots.end(), 0);
}

TEST(Checksum, FindsEveryFlippedBit) {
  std::mt19937 random(1);
  for (const std::size_t size : {1, 7, 8, 9, 31, 32, 33, 64, 100}) {
    std::vector<unsigned char> bytes(size);
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
    const std::uint64_t before = checksum(bytes.data(), size);
    std::set<std::uint64_t> seen = {before};
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
      EXPECT_TRUE(seen.insert(checksum(bytes.data(), size)).second) << size << " bytes, bit " << bit;
      bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    }
    EXPECT_EQ(checksum(bytes.data(), size), before);
  }
}

TEST(Checksum, TellsSizesAndPlacesApart) {
  const std::vector<unsigned char> zeros(256);
  std::set<std::uint64_t> seen;
  for (std::size_t size = 0; size <= zeros.size(); ++size)
    EXPECT_TRUE(seen.insert(checksum(zeros.data(), size)).second);
  std::vector<unsigned char> one(256);
  for (std::size_t at = 0; at < one.size(); ++at) {
    one[at] = 1;
    EXPECT_TRUE(seen.insert(checksum(one.data(), one.size())).second);
    one[at] = 0;
  }
}

// Memory that direct I/O can use.
class Memory {
 public:
  explicit Memory(std::int64_t bytes) : bytes_(bytes), begin_(new(std::align_val_t{kPage}) unsigned char[rounded()]) {
    std::memset(begin_, 0, rounded());
  }
  ~Memory() { operator delete[](begin_, std::align_val_t{kPage}); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  unsigned char* data() { return begin_; }
  std::string text(std::int64_t bytes) const { return {reinterpret_cast<const char*>(begin_), size_t(bytes)}; }
  void fill(std::mt19937& random) {
    for (std::int64_t i = 0; i < bytes_; ++i) begin_[i] = static_cast<unsigned char>(random());
  }

 private:
  std::size_t rounded() const { return static_cast<std::size_t>((bytes_ + kPage - 1) / kPage * kPage); }
  std::int64_t bytes_;
  unsigned char* begin_;
};

struct Case {
  std::string name;
  Way way;
  bool direct;
};

class TierFiles : public ::testing::TestWithParam<Case> {
 protected:
  std::shared_ptr<TierFile> open(std::chrono::milliseconds patience = std::chrono::minutes(2)) const {
    TierOptions options;
    options.way = GetParam().way;
    options.direct = GetParam().direct;
    options.chunk_bytes = 4 * kPage;
    options.patience = patience;
    return TierFile::open(folder_, options);
  }

  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("lowtide-tier-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override {
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
    std::filesystem::remove_all(folder_);
  }

  std::string folder_;
};

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

TEST_P(TierFiles, GiveBackWhatWasStored) {
  const std::size_t files = open_files();
  {
    const std::shared_ptr<TierFile> file = open();
    std::mt19937 random(1);
    for (const std::int64_t bytes : {1, 100, 4096, 4097, 16384, 16385, 100'000, 1'000'000}) {
      Memory from(bytes);
      Memory to(bytes);
      from.fill(random);
      const std::int64_t offset = file->reserve(bytes);
      const Ticket stored = file->store(from.data(), offset, bytes);
      const Ticket loaded = file->load(to.data(), offset, bytes);
      file->wait(loaded);
      file->wait(stored);
      EXPECT_EQ(to.text(bytes), from.text(bytes));
      Memory shifted(bytes + 64);
      file->wait(file->load(shifted.data() + 64, offset, bytes));
      EXPECT_EQ(shifted.text(bytes + 64).substr(64), from.text(bytes));
      file->wait(file->store(shifted.data() + 64, offset, bytes));
      file->wait(file->load(to.data(), offset, bytes));
      EXPECT_EQ(to.text(bytes), from.text(bytes));
    }
  }
  EXPECT_EQ(open_files(), files);
}

std::vector<Case> cases() {
  return {{"ring_direct", Way::io_uring, true},
          {"ring_ordinary", Way::io_uring, false},
          {"threads_direct", Way::threads, true},
          {"threads_ordinary", Way::threads, false}};
}

INSTANTIATE_TEST_SUITE_P(All, TierFiles, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace lowtide::tier
