// A file to swap to: bytes come back as they were stored, or there is an error.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
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
#include "tier/measure_link.h"
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
  for (const std::size_t size : {1u, 7u, 8u, 9u, 31u, 32u, 33u, 64u, 100u}) {
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

TEST_P(TierFiles, LoadNoMoreThanTheyWereAskedFor) {
  const std::shared_ptr<TierFile> file = open();
  std::mt19937 random(2);
  for (const std::int64_t bytes : {1, 4095, 4097, 16383, 16385, 20'000, 100'000}) {
    Memory from(bytes);
    from.fill(random);
    const std::int64_t offset = file->reserve(bytes);
    file->wait(file->store(from.data(), offset, bytes));
    Memory to(bytes + kPage);
    to.fill(random);
    const std::string behind = to.text(bytes + kPage).substr(static_cast<std::size_t>(bytes));
    file->wait(file->load(to.data(), offset, bytes));
    EXPECT_EQ(to.text(bytes + kPage), from.text(bytes) + behind);
  }
}

// Runs what must end in this error.
template <typename Action>
void expect_error(int error, Action action) {
  try {
    action();
    ADD_FAILURE() << "no error, expected " << std::strerror(error);
  } catch (const FileError& thrown) {
    EXPECT_EQ(thrown.code().value(), error) << thrown.what();
    EXPECT_THAT(thrown.what(), ::testing::HasSubstr(thrown.folder()));
  }
}

// However slow the machine is beside the patience of the file.
void wait_at_length(TierFile& file, Ticket ticket) {
  for (int more = 1000; more > 0; --more) {
    try {
      return file.wait(ticket);
    } catch (const FileError& thrown) {
      if (thrown.code().value() != ETIMEDOUT) throw;
    }
  }
  ADD_FAILURE() << "nothing moves";
}

// A few blocks of memory and slots of a file, and what each slot has to hold.
class Model {
 public:
  static constexpr int kPlaces = 6;
  static constexpr std::int64_t kMost = 80'000;

  explicit Model(TierFile& file) : file_(file), slots_(kPlaces), texts_(kPlaces) {
    for (std::int64_t& slot : slots_) slot = file_.reserve(kMost);
    for (int i = 0; i < kPlaces; ++i) memory_.push_back(std::make_unique<Memory>(kMost + kPage));
  }

  // One store or load of a slot that was stored. True if it ended with an error.
  bool step(std::mt19937& random) {
    const std::size_t place = random() % kPlaces;
    Memory& memory = *memory_[random() % kPlaces];
    unsigned char* begin = memory.data() + (random() % 4 == 0 ? 64 : 0);
    const bool loads = !texts_[place].empty() && random() % 2 == 0;
    if (loads) return load(place, begin);
    const std::int64_t bytes = 1 + static_cast<std::int64_t>(random() % kMost);
    memory.fill(random);
    const std::string text(reinterpret_cast<char*>(begin), static_cast<std::size_t>(bytes));
    const bool failed = fails([&] { file_.wait(file_.store(begin, slots_[place], bytes)); });
    texts_[place] = text;
    lost_[place] = failed;
    return failed;
  }

 private:
  template <typename Action>
  static bool fails(Action action) {
    try {
      action();
      return false;
    } catch (const FileError&) {
      return true;
    }
  }

  bool load(std::size_t place, unsigned char* begin) {
    const std::string& text = texts_[place];
    const auto bytes = static_cast<std::int64_t>(text.size());
    const bool failed = fails([&] { file_.wait(file_.load(begin, slots_[place], bytes)); });
    if (!failed) {
      EXPECT_FALSE(lost_[place]);
      EXPECT_EQ(text, std::string(reinterpret_cast<char*>(begin), text.size()));
    }
    return failed;
  }

  TierFile& file_;
  std::vector<std::int64_t> slots_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::vector<std::string> texts_;
  std::map<std::size_t, bool> lost_;
};

TEST_P(TierFiles, HoldWhatAModelHolds) {
  const std::shared_ptr<TierFile> file = open();
  std::mt19937 random(7);
  Model model(*file);
  for (int i = 0; i < 300; ++i) EXPECT_FALSE(model.step(random)) << i;
}

TEST_P(TierFiles, MoveInTheOrderOfIssue) {
  const std::shared_ptr<TierFile> file = open();
  constexpr std::int64_t kBytes = 200'000;
  constexpr std::size_t kStores = 20;
  const std::int64_t offset = file->reserve(kBytes);
  std::mt19937 random(3);
  std::vector<std::unique_ptr<Memory>> from;
  std::vector<std::unique_ptr<Memory>> to;
  for (std::size_t i = 0; i < kStores; ++i) {
    from.push_back(std::make_unique<Memory>(kBytes));
    from.back()->fill(random);
    to.push_back(std::make_unique<Memory>(kBytes));
    file->store(from[i]->data(), offset, kBytes);
    file->load(to[i]->data(), offset, kBytes);
  }
  file->wait_all();
  for (std::size_t i = 0; i < kStores; ++i) EXPECT_EQ(to[i]->text(kBytes), from[i]->text(kBytes)) << i;
}

TEST_P(TierFiles, GiveRightBytesOrAnErrorWhateverFails) {
  const std::size_t files = open_files();
  for (const Fault fault : {Fault::short_transfer, Fault::io_error, Fault::no_space, Fault::flipped_byte}) {
    for (std::uint64_t index = 0; index < 12; ++index) {
      const std::shared_ptr<TierFile> file = open();
      file->set_faults(std::make_shared<Faults>(std::map<std::uint64_t, Fault>{{index, fault}}));
      std::mt19937 random(11);
      Model model(*file);
      bool failed = false;
      for (std::uint64_t i = 0; i < 40; ++i) {
        const bool now = model.step(random);
        EXPECT_FALSE(now && i < index);
        EXPECT_FALSE(!now && i == index && (fault == Fault::io_error || fault == Fault::no_space));
        failed = failed || now;
      }
      EXPECT_FALSE(failed && fault == Fault::short_transfer) << index;
    }
  }
  EXPECT_EQ(open_files(), files);
}

TEST_P(TierFiles, SayWhatFailed) {
  const std::shared_ptr<TierFile> file = open();
  Memory memory(kPage);
  const std::int64_t offset = file->reserve(kPage);
  file->set_faults(std::make_shared<Faults>(
      std::map<std::uint64_t, Fault>{{0, Fault::no_space}, {3, Fault::flipped_byte}, {6, Fault::io_error}}));
  const Ticket stored = file->store(memory.data(), offset, kPage);
  const Ticket loaded = file->load(memory.data(), offset, kPage);
  expect_error(ENOSPC, [&] { file->wait(stored); });
  file->wait(stored);  // is told once
  expect_error(ENODATA, [&] { file->wait(loaded); });
  file->wait(file->store(memory.data(), offset, kPage));
  expect_error(EBADMSG, [&] { file->wait(file->load(memory.data(), offset, kPage)); });
  file->wait(file->store(memory.data(), offset, kPage));
  file->wait(file->load(memory.data(), offset, kPage));
  file->load(memory.data(), offset, kPage);
  expect_error(EIO, [&] { file->wait_all(); });
  file->wait_all();
  expect_error(EINVAL, [&] { file->load(memory.data(), offset + 64, kPage); });
}

TEST_P(TierFiles, StayLostWhereNothingWasStoredSince) {
  const std::shared_ptr<TierFile> file = open();
  Memory memory(4 * kPage);
  const std::int64_t offset = file->reserve(4 * kPage);
  file->set_faults(std::make_shared<Faults>(std::map<std::uint64_t, Fault>{{0, Fault::io_error}}));
  file->store(memory.data(), offset, 4 * kPage);
  expect_error(EIO, [&] { file->wait_all(); });
  file->wait(file->store(memory.data(), offset + kPage, 2 * kPage));
  file->wait(file->load(memory.data(), offset + kPage, 2 * kPage));
  expect_error(ENODATA, [&] { file->wait(file->load(memory.data(), offset, kPage)); });
  expect_error(ENODATA, [&] { file->wait(file->load(memory.data(), offset + 3 * kPage, kPage)); });
  file->release(offset, 4 * kPage);
  EXPECT_EQ(file->reserve(4 * kPage), offset);
  file->wait(file->load(memory.data(), offset, kPage));
}

TEST_P(TierFiles, GiveUpOnADiskThatIsStuck) {
  const auto faults = std::make_shared<Faults>(std::map<std::uint64_t, Fault>{{0, Fault::stuck}});
  const std::size_t files = open_files();
  Memory memory(kPage);
  {
    const std::shared_ptr<TierFile> file = open(std::chrono::milliseconds(50));
    const std::int64_t offset = file->reserve(kPage);
    file->set_faults(faults);
    const Ticket stored = file->store(memory.data(), offset, kPage);
    expect_error(ETIMEDOUT, [&] { file->wait(stored); });
    expect_error(ETIMEDOUT, [&] { file->wait_all(); });
    file->release(offset, kPage);
    EXPECT_NE(file->reserve(kPage), offset);  // the disk may still write there
  }  // does not wait for ever
  faults->release();
  for (int i = 0; i < 10'000 && open_files() > files; ++i) usleep(1000);
  EXPECT_EQ(open_files(), files);  // it has ended by itself, and with it everything that it had
}

TEST_P(TierFiles, WaitForADiskThatWasStuck) {
  const std::shared_ptr<TierFile> file = open(std::chrono::milliseconds(50));
  Memory from(kPage);
  Memory to(kPage);
  std::mt19937 random(5);
  from.fill(random);
  const std::int64_t offset = file->reserve(kPage);
  const auto faults = std::make_shared<Faults>(std::map<std::uint64_t, Fault>{{0, Fault::stuck}});
  file->set_faults(faults);
  const Ticket stored = file->store(from.data(), offset, kPage);
  expect_error(ETIMEDOUT, [&] { file->wait(stored); });
  faults->release();
  wait_at_length(*file, stored);
  wait_at_length(*file, file->load(to.data(), offset, kPage));
  EXPECT_EQ(to.text(kPage), from.text(kPage));
}

TEST_P(TierFiles, EndTransfersThatNobodyWaitsFor) {
  Memory memory(1'000'000);
  const std::shared_ptr<TierFile> file = open();
  const std::int64_t offset = file->reserve(1'000'000);
  file->store(memory.data(), offset, 1'000'000);
  file->load(memory.data(), offset, 1'000'000);
}

TEST_P(TierFiles, AreSeenThroughTheirHomes) {
  const std::shared_ptr<TierFile> file = open();
  constexpr std::int64_t kBytes = 10 * kPage + 100;
  const std::int64_t other = file->reserve(kPage);
  const std::int64_t offset = file->reserve(kBytes);
  std::byte* home = file->map(offset, kBytes);
  EXPECT_EQ(TierFile::find(home + 5000)->offset, offset + 5000);
  EXPECT_EQ(TierFile::find(home + 5000)->file, file);
  EXPECT_FALSE(TierFile::find(&other));
  Memory memory(kBytes);
  std::mt19937 random(2);
  for (int i = 0; i < 4; ++i) {
    memory.fill(random);
    file->wait(file->store(memory.data(), offset, kBytes));
    EXPECT_FALSE(file->is_direct() && TierFile::is_touched(home, kBytes));
    EXPECT_EQ(std::memcmp(home, memory.data(), kBytes), 0);
    EXPECT_TRUE(TierFile::is_touched(home, kBytes));
    std::memset(home + 4000 * i, i, 5000);
    if (i == 1) file->wait(file->store(memory.data(), other, kPage));
    if (i >= 2) TierFile::forget_pages(home, kBytes);
    EXPECT_EQ(TierFile::is_touched(home, kBytes), i < 2);
    file->wait(file->load(memory.data(), offset, kBytes));
    file->wait(file->load(memory.data(), offset, kBytes));
    EXPECT_EQ(std::memcmp(home, memory.data(), kBytes), 0);
  }
  file->unmap(home, offset, kBytes);
  EXPECT_FALSE(TierFile::find(home));
}

// As if memory had run short: the pages that were written go back, and nobody has said so.
TEST_P(TierFiles, KnowThatAHomeWasWrittenThoughItsPagesAreGone) {
  const std::shared_ptr<TierFile> file = open();
  const std::int64_t offset = file->reserve(kPage);
  const std::int64_t other = file->reserve(kPage);
  std::byte* home = file->map(offset, kPage);
  Memory memory(kPage);
  for (const bool stores : {false, true}) {
    file->wait(file->store(memory.data(), offset, kPage));
    usleep(20'000);  // older systems note times of change this coarsely
    std::memset(home, 3, kPage);
    msync(home, kPage, MS_SYNC);
    madvise(home, kPage, MADV_DONTNEED);
    EXPECT_FALSE(TierFile::is_touched(home, kPage));
    if (stores) file->wait(file->store(memory.data(), other, kPage));
    Memory loaded(kPage);
    file->wait(file->load(loaded.data(), offset, kPage));
    EXPECT_EQ(loaded.data()[100], 3);
  }
  file->unmap(home, offset, kPage);
}

TEST_P(TierFiles, FindDamageToAHomeThatNobodyWrote) {
  const std::shared_ptr<TierFile> file = open();
  const std::int64_t offset = file->reserve(kPage);
  std::byte* home = file->map(offset, kPage);
  Memory memory(kPage);
  file->set_faults(std::make_shared<Faults>(std::map<std::uint64_t, Fault>{{0, Fault::flipped_byte}}));
  file->wait(file->store(memory.data(), offset, kPage));
  expect_error(EBADMSG, [&] { file->wait(file->load(memory.data(), offset, kPage)); });
  file->unmap(home, offset, kPage);
}

TEST_P(TierFiles, LiveAsLongAsTheirHomes) {
  const std::size_t files = open_files();
  std::shared_ptr<TierFile> file = open();
  std::byte* home = file->map(file->reserve(kPage), kPage);
  std::memset(home, 1, kPage);
  file = nullptr;
  std::optional<TierFile::Place> place = TierFile::find(home);
  ASSERT_TRUE(place);
  place->file->unmap(home, place->offset, kPage);
  place.reset();
  EXPECT_EQ(open_files(), files);
}

// Runs in a child, which ends by itself or is killed.
template <typename Action>
int status_of_child(Action action) {
  const pid_t child = fork();
  if (child == 0) _exit(action() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_P(TierFiles, AreRefusedInAForkedProcess) {
  std::shared_ptr<TierFile> file = open();
  const std::int64_t offset = file->reserve(kPage);
  std::byte* home = file->map(offset, kPage);
  std::memset(home, 1, kPage);
  Memory memory(kPage);
  const auto refuses = [](auto action) {
    try {
      action();
      return false;
    } catch (const FileError& thrown) {
      return thrown.code().value() == EPERM;
    }
  };
  EXPECT_EQ(status_of_child([&] {
              bool right = refuses([&] { file->store(memory.data(), offset, kPage); }) &&
                           refuses([&] { file->wait_all(); }) && refuses([&] { file->reserve(kPage); }) &&
                           !TierFile::find(home) && home[0] == std::byte{1};
              std::memset(home, 2, kPage);
              right = right && status_of_child([&] { return home[0] == std::byte{2}; }) == 0;
              file->unmap(home, offset, kPage);
              file->release(offset, kPage);
              file = nullptr;
              return right;
            }),
            0);
  EXPECT_EQ(home[0], std::byte{1});
  file->wait(file->load(memory.data(), offset, kPage));
  EXPECT_EQ(memory.data()[0], 1);
  file->unmap(home, offset, kPage);
}

TEST_P(TierFiles, LeaveNothingWhenTheProcessIsKilled) {
  const int status = status_of_child([&] {
    const std::shared_ptr<TierFile> file = open();
    Memory memory(1'000'000);
    const std::int64_t offset = file->reserve(1'000'000);
    while (true) {
      for (int i = 0; i < 10; ++i) file->store(memory.data(), offset, 1'000'000);
      kill(getpid(), SIGKILL);
    }
    return true;
  });
  EXPECT_TRUE(WIFSIGNALED(status));  // TearDown looks at the folder
}

TEST_P(TierFiles, RefuseMoreThanTheDiskHas) {
  const std::shared_ptr<TierFile> file = open();
  const std::int64_t first = file->reserve(kPage);
  const auto space = static_cast<std::int64_t>(std::filesystem::space(folder_).capacity);
  expect_error(ENOSPC, [&] { file->reserve(space); });
  EXPECT_EQ(file->reserve(kPage), first + kPage);
}

// As containers often do.
bool forbid_io_uring() {
  constexpr std::uint32_t kNumber = offsetof(seccomp_data, nr);
  std::array<sock_filter, 4> rules = {{{BPF_LD | BPF_W | BPF_ABS, 0, 0, kNumber},
                                       {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_io_uring_setup},
                                       {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
                                       {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}}};
  const sock_fprog program = {rules.size(), rules.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(TierFile, UsesThreadsWhereTheKernelRefusesARing) {
  const int status = status_of_child([] {
    if (!forbid_io_uring()) return true;  // the system does not let us
    const std::string folder = std::filesystem::temp_directory_path();
    const std::shared_ptr<TierFile> file = TierFile::open(folder);
    Memory memory(kPage);
    const std::int64_t offset = file->reserve(kPage);
    file->wait(file->store(memory.data(), offset, kPage));
    expect_error(ENOSYS, [&] { TierFile::open(folder, {.way = Way::io_uring}); });
    return !file->uses_ring() && !::testing::Test::HasFailure();
  });
  EXPECT_EQ(status, 0);
}

TEST(TierFile, RefusesMemoryAndMissingFolders) {
  expect_error(EINVAL, [] { TierFile::open("/dev/shm"); });
  expect_error(ENOENT, [] { TierFile::open("/missing"); });
}

TEST(MeasureLink, IsQuickAndRemembered) {
  const std::string folder = std::filesystem::temp_directory_path();
  const Link link = measure_link(folder);
  EXPECT_GT(link.store_per_second, Bytes(1'000'000));
  EXPECT_GT(link.load_per_second, Bytes(1'000'000));
  EXPECT_GT(link.latency, Nanos(100));
  EXPECT_EQ(measure_link(folder), link);
}

// The best way is io_uring where there is one.
std::vector<Case> cases() {
  return {{"best_direct", Way::best, true},
          {"best_ordinary", Way::best, false},
          {"threads_direct", Way::threads, true},
          {"threads_ordinary", Way::threads, false}};
}

INSTANTIATE_TEST_SUITE_P(All, TierFiles, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace lowtide::tier
