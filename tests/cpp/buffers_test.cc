#include "lowtide/buffers.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::HasSubstr;

bool operator==(const BufferRow& a, const BufferRow& b) {
  return std::tie(a.id, a.lower, a.upper, a.size, a.alignment, a.offset) ==
         std::tie(b.id, b.lower, b.upper, b.size, b.alignment, b.offset);
}

bool same(const std::vector<BufferRow>& a, const std::vector<BufferRow>& b) {
  return std::ranges::equal(a, b, [](const BufferRow& x, const BufferRow& y) { return x == y; });
}

TEST(Buffers, AreReadFromColumnsInAnyOrder) {
  const std::vector<BufferRow> rows =
      unwrap(parse_buffers("size,offset, upper ,lower,id,alignment\n"
                           "64,,20,0,a,\n"
                           "32, 128 ,18446744073709551615,10,b c,64\n"));
  EXPECT_TRUE(
      same(rows, {{"a", 0, 20, Bytes(64)}, {"b c", 10, 18446744073709551615u, Bytes(32), Bytes(64), Bytes(128)}}));
}

TEST(Buffers, MayEndLinesAsOtherProgramsDo) {
  const std::vector<BufferRow> rows = unwrap(parse_buffers("id,lower,upper,size\na,0,1,2\n"));
  ASSERT_EQ(rows.size(), 1u);
  for (const char* text : {"id,lower,upper,size\r\na,0,1,2\r\n", "\xEF\xBB\xBFid,lower,upper,size\na,0,1,2",
                           "id,lower,upper,size\n\n  \na,0,1,2\n\n"}) {
    EXPECT_TRUE(same(unwrap(parse_buffers(text)), rows)) << text;
  }
  EXPECT_TRUE(unwrap(parse_buffers("id,lower,upper,size")).empty());
}

TEST(Buffers, ThatAreWrongAreRefusedWithTheirLine) {
  struct Case {
    std::string text;
    ErrorCode code;
    std::string message;
  };
  const std::string header = "id,lower,upper,size\n";
  const std::string all = "id,lower,upper,size,alignment,offset\n";
  const Case cases[] = {
      {"", ErrorCode::wrong_format, "there is no column ''"},
      {"id,lower,upper\n", ErrorCode::wrong_format, "'size' is missing"},
      {"id,lower,upper,size,id\n", ErrorCode::wrong_format, "'id' is there twice"},
      {"id,lower,upper,size,colour\n", ErrorCode::wrong_format, "no column 'colour'"},
      {header + "a,0,1\n", ErrorCode::malformed_file, "line 2: it has 3 fields, but the first line names 4 columns"},
      {header + "a,0,1,2\n\nb,0,1,2,3\n", ErrorCode::malformed_file, "line 4: it has 5 fields"},
      {header + "a,-1,1,2\n", ErrorCode::malformed_file, "line 2: lower must be a whole number"},
      {header + "a,0,+1,2\n", ErrorCode::malformed_file, "not '+1'"},
      {header + "a,0,1,\n", ErrorCode::malformed_file, "size must be a whole number"},
      {header + "a,0,1,1.5\n", ErrorCode::malformed_file, "not '1.5'"},
      {header + "a,0,1,0x10\n", ErrorCode::malformed_file, "not '0x10'"},
      {header + "a,0,18446744073709551616,1\n", ErrorCode::malformed_file, "upper must be"},
      {header + "a,2,1,1\n", ErrorCode::malformed_file, "line 2: buffer 'a' lives from 2 to 1, which is earlier"},
      {header + ",0,1,1\n", ErrorCode::malformed_file, "line 2: its id is empty"},
      {header + "a,0,1,1\nb,0,1,1\na,5,6,1\n", ErrorCode::malformed_file,
       "line 4: there is a buffer 'a' already, in line 2"},
      {all + "a,0,1,1,0,\n", ErrorCode::malformed_file, "line 2: buffer 'a' has an alignment of 0"},
      {all + "a,0,1,1,64,65\n", ErrorCode::malformed_file, "at offset 65, which is no multiple of its alignment 64"},
      {all + "a,0,1,1,x,\n", ErrorCode::malformed_file, "alignment must be"},
      // 2^62 is the last address; the second ends one byte above.
      {header + "a,0,1,4611686018427387905\n", ErrorCode::size_overflow, "line 2: buffer 'a' does not fit"},
      {all + "a,0,1,1,1,4611686018427387904\n", ErrorCode::size_overflow, "line 2"},
      {all + "a,0,1,1,1,18446744073709551615\n", ErrorCode::size_overflow, "line 2"},
      {all + "a,0,1,1,9223372036854775808,\n", ErrorCode::size_overflow, "line 2"},
  };
  for (const Case& wrong : cases) {
    const Result<std::vector<BufferRow>> rows = parse_buffers(wrong.text);
    ASSERT_FALSE(rows.ok()) << wrong.text;
    EXPECT_EQ(rows.error().code, wrong.code) << wrong.text;
    EXPECT_THAT(rows.error().message, HasSubstr(wrong.message));
    EXPECT_THAT(rows.error().message, HasSubstr("the text: "));
  }
}

TEST(Buffers, AreReadFromJson) {
  const std::vector<BufferRow> rows = unwrap(parse_buffers(R"( {"buffers": [
      {"id": "a", "lower": 0, "upper": 20, "size": 64},
      {"offset": 128, "alignment": 64, "size": 32, "upper": 18446744073709551615, "lower": 10, "id": "b \u00e9"}]} )"));
  EXPECT_TRUE(same(
      rows, {{"a", 0, 20, Bytes(64)}, {"b \xC3\xA9", 10, 18446744073709551615u, Bytes(32), Bytes(64), Bytes(128)}}));
  EXPECT_TRUE(unwrap(parse_buffers("{\"buffers\": []}")).empty());
}

TEST(Buffers, ThatAreWrongInJsonAreRefusedWithTheirPlace) {
  struct Case {
    std::string text;
    ErrorCode code;
    std::string message;
  };
  const auto rows = [](const std::string& text) { return "{\"buffers\": [" + text + "]}"; };
  const auto row = [](const std::string& id, const std::string& rest) {
    return "{\"id\": \"" + id + "\", \"lower\": 0, \"upper\": 1" + rest + "}";
  };
  const std::string right = row("a", ", \"size\": 1");
  const std::string ids = "an id has no comma and no line end, and no blank at its ends";
  const Case cases[] = {
      {"{}", ErrorCode::wrong_format, "it has no list 'buffers'"},
      {"{\"format\": \"lowtide-graph\", \"version\": 1, \"buffers\": []}", ErrorCode::wrong_format,
       "its format is '\"lowtide-graph\"', but buffers have none"},
      {"{\"buffers\": [], \"colour\": 1}", ErrorCode::malformed_file, "no field 'colour'; the only one is buffers"},
      {"{\"buffers\": {}}", ErrorCode::malformed_file, "buffers: expected a list"},
      {"{\"buffers\": []", ErrorCode::malformed_file, "the text ends"},
      {rows(right + ",7"), ErrorCode::malformed_file, "buffers[1]: expected an object, but found '7'"},
      {rows(right + "," + row("b", "")), ErrorCode::malformed_file, "buffers[1]: field 'size' is missing"},
      {rows(row("a", ", \"size\": -1")), ErrorCode::malformed_file, "buffers[0].size: expected a whole number"},
      {rows(row("a", ", \"size\": 1.5")), ErrorCode::malformed_file, "but found '1.5'"},
      {rows(row("a", ", \"size\": 1, \"offset\": null")), ErrorCode::malformed_file, "buffers[0].offset: expected"},
      {rows(row("a", ", \"size\": 1, \"colour\": 1")), ErrorCode::malformed_file, "there is no field 'colour'"},
      {rows(row("a", ", \"size\": 1, \"size\": 1")), ErrorCode::malformed_file, "'size' is given twice"},
      {rows(row("", ", \"size\": 1")), ErrorCode::malformed_file, "buffers[0]: its id is empty"},
      {rows(row("a,b", ", \"size\": 1")), ErrorCode::malformed_file, ids},
      {rows(row("a\\nb", ", \"size\": 1")), ErrorCode::malformed_file, ids},
      {rows(row(" a", ", \"size\": 1")), ErrorCode::malformed_file, ids},
      {rows(right + "," + right), ErrorCode::malformed_file,
       "buffers[1]: there is a buffer 'a' already, in buffers[0]"},
      {rows(row("a", ", \"size\": 1, \"alignment\": 0")), ErrorCode::malformed_file, "has an alignment of 0"},
      {rows(row("a", ", \"size\": 1, \"offset\": 4611686018427387904")), ErrorCode::size_overflow, "buffers[0]: "},
  };
  for (const Case& wrong : cases) {
    const Result<std::vector<BufferRow>> read = parse_buffers(wrong.text);
    ASSERT_FALSE(read.ok()) << wrong.text;
    EXPECT_EQ(read.error().code, wrong.code) << wrong.text;
    EXPECT_THAT(read.error().message, HasSubstr(wrong.message));
    EXPECT_THAT(read.error().message, HasSubstr("the text: "));
  }
}

TEST(Buffers, AreWrittenAsTheyWereRead) {
  const std::string plain = "id,lower,upper,size,offset\na,0,20,64,128\nb,3,5,7,\n";
  EXPECT_EQ(buffers_text(unwrap(parse_buffers(plain))), plain);
  const std::string aligned = "id,lower,upper,size,alignment,offset\na,0,20,64,1,\nb,3,5,7,2,4\n";
  EXPECT_EQ(buffers_text(unwrap(parse_buffers(aligned))), aligned);
  const std::string json =
      "{\"buffers\":[\n{\"id\":\"a\",\"lower\":0,\"upper\":20,\"size\":64},\n"
      "{\"id\":\"\\\"b\",\"lower\":3,\"upper\":5,\"size\":7,\"alignment\":2,\"offset\":4}]}\n";
  EXPECT_EQ(buffers_text(unwrap(parse_buffers(json)), BufferFormat::json), json);
}

TEST(Buffers, AreSavedAndLoadedCompressedToo) {
  std::vector<BufferRow> rows;
  for (std::uint64_t i = 0; i < 10'000; ++i) rows.push_back({std::to_string(i), i, i + 3, Bytes(i)});  // many pieces
  for (const char* name : {"buffers.csv", "buffers.csv.zst", "buffers.json", "buffers.json.zst"}) {
    const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / name;
    ASSERT_TRUE(save_buffers(rows, path).ok());
    EXPECT_TRUE(same(unwrap(load_buffers(path)), rows));
    std::filesystem::remove(path);
    EXPECT_EQ(load_buffers(path).error().code, ErrorCode::file_error);
  }
}

// Moments 5, 7, 10^18 and 2^64 - 1 are steps 0 to 3.
TEST(Buffers, BecomeItemsWhoseStepsAreTheMomentsInOrder) {
  const std::vector<BufferRow> rows = {{"a", 7, 18446744073709551615u, Bytes(1), Bytes(4), Bytes(8)},
                                       {"b", 5, 1'000'000'000'000'000'000, Bytes(2)}};
  const std::vector<LayoutItem> items = to_items(rows);
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].begin, StepIndex(1));
  EXPECT_EQ(items[0].end, StepIndex(3));
  EXPECT_EQ(items[0].size, Bytes(1));
  EXPECT_EQ(items[0].alignment, Bytes(4));
  EXPECT_EQ(items[0].fixed, Bytes(8));
  EXPECT_EQ(items[1].begin, StepIndex(0));
  EXPECT_EQ(items[1].end, StepIndex(2));
  EXPECT_EQ(items[1].alignment, Bytes(1));
  EXPECT_EQ(items[1].fixed, std::nullopt);
}

// Whatever bytes of a right text are changed: an error that says where, or rows that say the same when written and read
// again.
void expect_any_text_is_taken(const std::string& right, const std::string& bytes, const std::string& said) {
  int read = 0;
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    std::mt19937_64 random(seed);
    std::string text = right;
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t from = random() % 4 == 0 ? 0 : text.find('\n') % text.size();  // mostly behind the first line
      const std::size_t place = from + random() % (text.size() - from);
      if (random() % 3 == 0)
        text.erase(place, 1 + random() % 4);
      else
        text.insert(place, 1, bytes[random() % bytes.size()]);
    }
    const Result<std::vector<BufferRow>> rows = parse_buffers(text);
    rows.ok() ? ++read : ++refused;
    if (rows.ok()) {
      EXPECT_TRUE(same(unwrap(parse_buffers(buffers_text(*rows))), *rows)) << "seed " << seed;
      const Result<NamedLayout> made = lay_out(to_items(*rows));
      EXPECT_TRUE(made.ok() || made.error().code == ErrorCode::invalid_item ||
                  made.error().code == ErrorCode::size_overflow)
          << "seed " << seed;
    } else {
      EXPECT_THAT(rows.error().message, HasSubstr(said)) << "seed " << seed;
    }
  }
  EXPECT_GT(read, 400);
  EXPECT_GT(refused, 1'000);
}

TEST(Buffers, TakeAnyCsv) {
  expect_any_text_is_taken("id,lower,upper,size,alignment,offset\na,0,20,64,,\nb,0,40,64,64,128\nc,20,30,7,1,\n",
                           "0189,,\n\n\r -+.ab\xFF\xC3\"" + std::string(1, '\0'), "line");
}

TEST(Buffers, TakeAnyJson) {
  const std::vector<BufferRow> rows = {
      {"a", 0, 20, Bytes(64)}, {"b", 0, 40, Bytes(64), Bytes(64), Bytes(128)}, {"c d", 20, 30, Bytes(7)}};
  expect_any_text_is_taken(buffers_text(rows, BufferFormat::json),
                           "0189,[]{}:\n -+.ab\xFF\xC3\"\\" + std::string(1, '\0'), "the text: ");
}

}  // namespace
}  // namespace lowtide
