// Spoiled graph and plan files, plain and compressed: each must be refused with a clean error or, where the damage did
// no harm, give an object that plan() and verify() can take; soon, and without taking much memory.
//
//   LOWTIDE_FULL=1   20,000 files instead of 2,000
#include <malloc.h>
#include <zstd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "full_size.h"
#include "graph/words.h"
#include "gtest/gtest.h"
#include "lowtide/files.h"
#include "lowtide/verify.h"
#include "random_graph.h"
#include "unwrap.h"

namespace {

// Every byte that malloc has given out, whoever asked: operator new and zstd go through it too. Sanitizers bring their
// own malloc; under them memory is not counted.
std::atomic<std::size_t> live_bytes = 0;
std::atomic<std::size_t> most_bytes = 0;

#ifndef __SANITIZE_ADDRESS__
constexpr bool kCounting = true;

void note(void* memory) {
  if (memory == nullptr) return;
  const std::size_t live = live_bytes += malloc_usable_size(memory);
  std::size_t most = most_bytes;
  while (live > most && !most_bytes.compare_exchange_weak(most, live)) {
  }
}

void forget(void* memory) {
  if (memory != nullptr) live_bytes -= malloc_usable_size(memory);
}
#else
constexpr bool kCounting = false;
#endif

}  // namespace

#ifndef __SANITIZE_ADDRESS__
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* memory);

void* malloc(std::size_t size) {
  void* const memory = __libc_malloc(size);
  note(memory);
  return memory;
}
void* calloc(std::size_t count, std::size_t size) {
  void* const memory = __libc_calloc(count, size);
  note(memory);
  return memory;
}
void* realloc(void* old, std::size_t size) {
  forget(old);
  void* const memory = __libc_realloc(old, size);
  note(memory != nullptr || size == 0 ? memory : old);
  return memory;
}
void* memalign(std::size_t alignment, std::size_t size) {
  void* const memory = __libc_memalign(alignment, size);
  note(memory);
  return memory;
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return memalign(alignment, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  *memory = memalign(alignment, size);
  return *memory == nullptr ? 12 : 0;
}
void free(void* memory) {
  forget(memory);
  __libc_free(memory);
}
}
#endif

namespace lowtide {
namespace {

namespace fs = std::filesystem;
using Random = std::mt19937_64;

std::size_t below(std::size_t limit, Random& random) {
  return random() % std::max<std::size_t>(limit, 1);
}

std::size_t place(const std::string& text, Random& random) {
  return below(text.size(), random);
}

// Where one of `wanted` stands, from a random place on; the end of the text if there is none.
std::size_t find(const std::string& text, const char* wanted, Random& random) {
  return std::min(text.find_first_of(wanted, place(text, random)), text.size());
}

// The number at or after a random place: its begin and end.
std::pair<std::size_t, std::size_t> number(const std::string& text, Random& random) {
  const std::size_t begin = find(text, "0123456789", random);
  return {begin, std::min(text.find_first_not_of("0123456789", begin), text.size())};
}

std::string repeated(const std::string& piece, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += piece;
  return text;
}

// Puts `piece` many times where a list begins, so that the list is huge.
void fill_list(std::string& text, const std::string& piece, std::size_t bytes, Random& random) {
  const std::size_t open = find(text, "[", random);
  if (open == text.size()) return;
  text.insert(open + 1, repeated(piece, bytes));
}

struct Damage {
  const char* name;
  void (*apply)(std::string& text, Random& random);
};

// To the text, before it is compressed.
const Damage kTextDamages[] = {
    {"truncated", [](std::string& t, Random& r) { t.resize(place(t, r)); }},
    {"truncated_at_structure", [](std::string& t, Random& r) { t.resize(find(t, "[]{},:\"\n", r)); }},
    {"truncated_after_structure",
     [](std::string& t, Random& r) { t.resize(std::min(t.size(), find(t, "[]{},:\"\\", r) + 1)); }},
    {"bit_flipped",
     [](std::string& t, Random& r) {
       for (std::size_t i = 1 + below(3, r); i > 0 && !t.empty(); --i) {
         t[place(t, r)] ^= static_cast<char>(1U << below(8, r));
       }
     }},
    {"deleted", [](std::string& t, Random& r) { t.erase(place(t, r), 1 + below(20, r)); }},
    {"duplicated",
     [](std::string& t, Random& r) {
       const std::string piece = t.substr(place(t, r), 1 + below(100, r));
       t.insert(place(t, r), piece);
     }},
    {"swapped", [](std::string& t, Random& r) { std::swap(t[place(t, r)], t[place(t, r)]); }},
    {"line_duplicated",
     [](std::string& t, Random& r) {
       const std::size_t line = find(t, "\n", r);
       t.insert(line, t.substr(line, t.find('\n', line + 1) - line));
     }},
    {"line_deleted",
     [](std::string& t, Random& r) {
       const std::size_t line = find(t, "\n", r);
       t.erase(line, t.find('\n', line + 1) - line);
     }},
    {"structure_replaced",
     [](std::string& t, Random& r) {
       const std::size_t at = find(t, "[]{},:\"", r);
       if (at < t.size()) t[at] = "[]{},:\" \\0"[below(10, r)];
     }},
    {"number_replaced",
     [](std::string& t, Random& r) {
       static constexpr const char* kExtremes[] = {"-1",
                                                   "0",
                                                   "2147483647",
                                                   "2147483648",
                                                   "4294967294",
                                                   "4294967295",
                                                   "4294967296",
                                                   "1e308",
                                                   "1.5",
                                                   "-0",
                                                   "01",
                                                   "+1",
                                                   "9223372036854775807",
                                                   "9223372036854775808",
                                                   "\"x\"",
                                                   "null",
                                                   "true",
                                                   "[]",
                                                   "{}",
                                                   "18446744073709551615",
                                                   "18446744073709551616",
                                                   "1e999",
                                                   "0x10",
                                                   "-9223372036854775808",
                                                   "99999999999999999999999999",
                                                   "NaN"};
       const auto [begin, end] = number(t, r);
       t.replace(begin, end - begin, kExtremes[below(std::size(kExtremes), r)]);
     }},
    {"number_changed",
     [](std::string& t, Random& r) {
       const auto [begin, end] = number(t, r);
       t.replace(begin, end - begin, std::to_string(below(20, r)));
     }},
    {"key_duplicated",
     [](std::string& t, Random& r) {
       const std::size_t open = find(t, "{", r);
       const std::size_t end = t.find_first_of(",}", open);
       if (end < t.size()) t.insert(end, words(",", t.substr(open + 1, end - open - 1)));
     }},
    {"key_misspelt",
     [](std::string& t, Random& r) {
       const std::size_t colon = t.find("\":", place(t, r));
       if (colon < t.size()) t.insert(colon, "s");
     }},
    {"not_utf8",
     [](std::string& t, Random& r) { t.insert(place(t, r), 1 + below(3, r), static_cast<char>(128 + below(128, r))); }},
    {"control_characters",
     [](std::string& t, Random& r) { t.insert(place(t, r), 1, static_cast<char>(below(32, r))); }},
    {"escapes", [](std::string& t, Random& r) { t.insert(find(t, "\"", r), "\\ud800"); }},
    {"nested",
     [](std::string& t, Random& r) { fill_list(t, below(2, r) != 0 ? "[" : "{\"a\":", 1 + below(100'000, r), r); }},
    {"nested_and_closed",
     [](std::string& t, Random& r) {
       const std::size_t depth = 1 + below(2'000, r);
       const auto [begin, end] = number(t, r);
       t.replace(begin, end - begin, std::string(depth, '[') + std::string(depth, ']'));
     }},
    {"huge_list",
     [](std::string& t, Random& r) {
       static constexpr const char* kRows[] = {"0,",
                                               "{\"size\":1},",
                                               "{\"name\":\"\"},",
                                               "{\"op\":0},",
                                               "[],",
                                               "{\"buffer\":0,\"begin\":0,\"end\":1},",
                                               "{\"buffer\":0},",
                                               ","};
       fill_list(t, kRows[below(std::size(kRows), r)], 1 + below(500'000, r), r);
     }},
    {"huge_text", [](std::string& t,
                     Random& r) { t.insert(find(t, "\"", r), words("\"", std::string(1 + below(500'000, r), 'x'))); }},
    {"huge_number",
     [](std::string& t, Random& r) { t.insert(number(t, r).first, std::string(1 + below(100'000, r), '9')); }},
    {"spaces", [](std::string& t, Random& r) { t.insert(place(t, r), std::string(1 + below(500'000, r), ' ')); }},
    {"other_version",
     [](std::string& t, Random& r) {
       const std::size_t version = t.find("\"version\":1");
       if (version < t.size()) t.replace(version + 10, 1, std::to_string(r()));
     }},
    {"nothing", [](std::string&, Random&) {}},
};

// To compressed bytes.
const Damage kByteDamages[] = {
    {"bytes_truncated", [](std::string& t, Random& r) { t.resize(place(t, r)); }},
    {"bytes_flipped", [](std::string& t, Random& r) { t[place(t, r)] ^= static_cast<char>(1U << below(8, r)); }},
    {"header_changed", [](std::string& t, Random& r) { t[below(12, r)] = static_cast<char>(below(256, r)); }},
    {"bytes_deleted", [](std::string& t, Random& r) { t.erase(place(t, r), 1 + below(8, r)); }},
    {"frame_repeated", [](std::string& t, Random&) { t += t; }},
    {"bytes_appended",
     [](std::string& t, Random& r) { t.append(1 + below(100, r), static_cast<char>(below(256, r))); }},
};

// Compressed files of a few kilobytes that hold very much: more than is read, or just not.
const char* const kBombRows[] = {
    " ", "[", "0,", ",", "{\"size\":1},", "{\"name\":\"a\"},", "{\"op\":0},", "x", "\\\"", "{\"buffer\":0},"};

std::string bomb(std::string text, Random& random) {
  const std::size_t bytes = (random() % 2 == 0 ? 40 : 60) << 20;
  fill_list(text, kBombRows[below(std::size(kBombRows), random)], bytes, random);
  return text;
}

std::string compressed(const std::string& text) {
  std::string bytes(ZSTD_compressBound(text.size()), '\0');
  bytes.resize(ZSTD_compress(bytes.data(), bytes.size(), text.data(), text.size(), 1));
  return bytes;
}

struct Worst {
  double seconds = 0;
  std::string slowest;
  std::size_t bytes = 0;
  std::string largest;
  double share = 0;  // of the memory that the file was allowed
};

// Of this thread alone: the machine may be busy with other things.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// What a file may cost. Sanitizers make everything several times as slow.
constexpr double kSeconds = kCounting ? 0.1 : 2.0;
std::size_t allowed_bytes(std::size_t file_size) {
  return (std::size_t{64} << 20) + 20 * file_size;
}

template <typename Take>
void measure(const std::string& name, std::size_t file_size, Worst& worst, Take take) {
  const std::size_t before = live_bytes;
  most_bytes = before;
  const double start = processor_seconds();
  take();
  const double seconds = processor_seconds() - start;
  const std::size_t bytes = most_bytes - before;
  EXPECT_LE(bytes, allowed_bytes(file_size));
  EXPECT_LE(seconds, kSeconds);
  if (seconds > worst.seconds) worst.seconds = seconds, worst.slowest = name;
  if (bytes > worst.bytes) worst.bytes = bytes, worst.largest = name;
  worst.share = std::max(worst.share, static_cast<double>(bytes) / static_cast<double>(allowed_bytes(file_size)));
}

bool is_clean(const Error& error) {
  const auto code = static_cast<unsigned>(error.code);
  const bool of_graph = code >= 101 && code <= 109;
  const bool of_file = code == 402 || (code >= 601 && code <= 603);
  const bool printable = std::ranges::all_of(error.message, [](char c) { return c >= ' '; });
  return (of_graph || of_file) && printable && error.message.size() < 1000;
}

TEST(HostileFiles, AreRefusedOrHarmless) {
  const std::size_t files = full_size() ? 20'000 : 2'000;
  const fs::path path = fs::path(::testing::TempDir()) / words("hostile-", std::random_device{}());
  Worst worst;
  std::size_t refused = 0;
  for (std::size_t seed = 0; seed < files; ++seed) {
    Random random(seed);
    const Graph graph = random_graph(random);
    const Plan made = unwrap(plan(graph));
    const bool of_plan = random() % 2 == 0;
    std::string text = of_plan ? plan_text(made) : graph_text(graph);
    std::string name = words("seed ", seed, of_plan ? " plan" : " graph");
    bool compress = random() % 3 == 0;
    if (seed % 200 == 199) {
      text = bomb(std::move(text), random);
      name += " bomb";
      compress = true;
    } else {
      for (std::size_t i = 1 + below(2, random); i > 0; --i) {
        const Damage& damage = kTextDamages[below(std::size(kTextDamages), random)];
        if (text.empty()) break;
        damage.apply(text, random);
        name += words(" ", damage.name);
      }
    }
    if (compress) {
      text = compressed(text);
      if (random() % 2 == 0) {
        const Damage& damage = kByteDamages[below(std::size(kByteDamages), random)];
        damage.apply(text, random);
        name += words(" ", damage.name);
      }
    }
    SCOPED_TRACE(name);
    std::ofstream(path, std::ios::binary) << text;
    measure(name, text.size(), worst, [&] {
      if (of_plan) {
        const Result<Plan> read = load_plan(path);
        if (read.ok()) (void)verify(graph, *read).ok();
        refused += read.ok() ? 0 : 1;
        EXPECT_TRUE(read.ok() || is_clean(read.error())) << read.error().message;
      } else {
        const Result<Graph> read = load_graph(path);
        if (read.ok() && read->num_ops() <= 1000) {
          const Result<Plan> planned = plan(*read);
          EXPECT_TRUE(planned.ok() && verify(*read, *planned).ok());
        }
        refused += read.ok() ? 0 : 1;
        EXPECT_TRUE(read.ok() || is_clean(read.error())) << read.error().message;
      }
    });
    if (::testing::Test::HasFailure()) break;
  }
  fs::remove(path);
  std::printf(
      "%zu files, %zu refused; slowest %.1f ms (%s); most memory %.1f MB (%s), at most %.0f %% of what is allowed\n",
      files, refused, 1e3 * worst.seconds, worst.slowest.c_str(), static_cast<double>(worst.bytes) / 1e6,
      worst.largest.c_str(), 100 * worst.share);
  EXPECT_GT(refused, files / 2);
  EXPECT_LT(refused, files);
}

}  // namespace
}  // namespace lowtide
