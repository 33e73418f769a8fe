#include "lowtide/budget.h"

#include <cmath>

#include "base/words.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::HasSubstr;

TEST(Budget, ParsesBytesExactly) {
  struct Case {
    std::string_view text;
    std::uint64_t bytes;
  };
  constexpr Case kCases[] = {
      {"0", 0},
      {"123", 123},
      {"123 B", 123},
      {"800MB", 800'000'000},
      {"1.5 GB", 1'500'000'000},
      {"1kB", 1000},
      {"1KB", 1000},
      {"6GiB", std::uint64_t{6} << 30},
      {"0.5KiB", 512},
      {"0.0009765625 KiB", 1},                   // 1/1024
      {"1.50000000000000000000000 KiB", 1536},   // trailing zeros are no digits
      {"16383PiB", std::uint64_t{16383} << 50},  // 16384 PiB would be 2^64
      {"18446744073709551.615 kB", 18446744073709551615u},
      {"0001 B", 1},
  };
  for (const Case& c : kCases) {
    const Result<Bytes> parsed = parse_bytes(c.text);
    ASSERT_TRUE(parsed.ok()) << c.text << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, Bytes(c.bytes)) << c.text;
  }
}

TEST(Budget, RefusesWhatIsNoAmountOfBytes) {
  struct Case {
    std::string_view text;
    std::string_view why;
  };
  constexpr Case kCases[] = {
      {"", "digit"},
      {"-1", "digit"},
      {"+1", "digit"},
      {" 1", "digit"},
      {"GiB", "digit"},
      {".5 GB", "digit"},
      {"nan", "digit"},
      {"1.", "follows the point"},
      {"1e9", "'e9' is none of the units"},
      {"1,5 GB", "',5 GB'"},
      {"6G", "'G' is none of the units B, kB"},
      {"6gib", "'gib'"},
      {"6  GB", "' GB'"},
      {"6 ", "unit is missing"},
      {"6GiB ", "'GiB '"},
      {"0.3 KiB", "no whole number of B"},
      {"0.6", "no whole number of B"},
      {"16384PiB", "more than 2^64 - 1 B"},
      {"99999999999999999999", "more than 2^64 - 1 B"},
      {"999999999999999999999", "more than 20 digits"},
      {"0.000000000000000000001 PB", "more than 20 digits"},
  };
  for (const Case& c : kCases) {
    const Result<Bytes> parsed = parse_bytes(c.text);
    ASSERT_FALSE(parsed.ok()) << c.text;
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_amount);
    EXPECT_THAT(parsed.error().message, HasSubstr(words("'", c.text, "'")));
    EXPECT_THAT(parsed.error().message, HasSubstr(std::string(c.why)));
  }
}

TEST(Budget, TellsSharesFromBytes) {
  EXPECT_EQ(std::get<Bytes>(*parse_budget("6GiB")), Bytes(std::uint64_t{6} << 30));
  EXPECT_EQ(std::get<Bytes>(*parse_budget("1.5kB")), Bytes(1500));
  EXPECT_EQ(std::get<Bytes>(*parse_budget("1B")), Bytes(1));
  EXPECT_EQ(std::get<Share>(*parse_budget("60%")).of_whole, 0.6);
  EXPECT_EQ(std::get<Share>(*parse_budget("100 %")).of_whole, 1.0);
  EXPECT_EQ(std::get<Share>(*parse_budget("12.5%")).of_whole, 0.125);
  for (const std::string_view text : {"150%", "0%", "0.0 %", "100.5%"}) {
    EXPECT_EQ(parse_budget(text).error().code, ErrorCode::invalid_share) << text;
  }
  for (const std::string_view text :
       {"", ".", "%", "-60%", "nan%", "6e1%", "60  %", "60% ", "0.6.1", "1..0", "-0.5", "nan", "0.6 ", "0B", "0 GiB"}) {
    EXPECT_EQ(parse_budget(text).error().code, ErrorCode::invalid_amount) << text;
  }
}

TEST(Budget, SaysWhatANumberWithoutAUnitMayHaveMeant) {
  struct Case {
    std::string_view text;
    std::string_view meant;
  };
  constexpr Case kCases[] = {
      {"0.6", "did you mean '60%'"}, {"1.0", "did you mean '100%'"},     {"60", "'60MiB', or '60%'"},
      {"1", "'1MiB', or '1%'"},      {"8192", "did you mean '8192MiB'"}, {"8000000000", "did you mean '8000000000B'"},
      {"0", "a budget is above 0"},  {"0.0", "a budget is above 0"},
  };
  for (const Case& c : kCases) {
    const Result<Budget> parsed = parse_budget(c.text);
    ASSERT_FALSE(parsed.ok()) << c.text;
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_amount);
    EXPECT_THAT(parsed.error().message, HasSubstr(std::string(c.meant))) << c.text;
  }
}

TEST(Budget, TimeIsAboveZero) {
  EXPECT_EQ(*parse_time_budget("20ms"), Nanos(20'000'000));
  for (const std::string_view text : {"0ms", "0.0 s", "-1ms", "nan", "20"}) {
    EXPECT_EQ(parse_time_budget(text).error().code, ErrorCode::invalid_amount) << text;
  }
}

TEST(Budget, ParsesRates) {
  EXPECT_EQ(unwrap(parse_rate("16GB/s")), Bytes(16'000'000'000));
  EXPECT_EQ(unwrap(parse_rate("1.5 GiB/s")), Bytes(3ULL << 29));
  for (const char* text : {"", "16GB", "/s", "0GB/s", "fast/s", "16GB/ms", "16GB /s", "-1GB/s"}) {
    EXPECT_EQ(parse_rate(text).error().code, ErrorCode::invalid_amount) << text;
  }
}

TEST(Budget, ParsesDurations) {
  EXPECT_EQ(*parse_duration("10ms"), Nanos(10'000'000));
  EXPECT_EQ(*parse_duration("1.5s"), Nanos(1'500'000'000));
  EXPECT_EQ(*parse_duration("250 us"), Nanos(250'000));
  EXPECT_EQ(*parse_duration("0.5min"), Nanos(30'000'000'000));
  EXPECT_THAT(parse_duration("10").error().message, HasSubstr("a unit is missing, one of ns, us, ms, s, min"));
  EXPECT_THAT(parse_duration("0.5ns").error().message, HasSubstr("no whole number of ns"));
}

TEST(Budget, ResolvesShares) {
  EXPECT_EQ(*resolve(Bytes(7), Bytes(1000)), Bytes(7));
  EXPECT_EQ(*resolve(Share{0.6}, Bytes(1001)), Bytes(600));  // 600.6, rounded down
  EXPECT_EQ(*resolve(Share{1.0}, Bytes(1001)), Bytes(1001));
  for (const double share : {0.0, -0.5, 1.01, std::nan("")}) {
    EXPECT_EQ(resolve(Share{share}, Bytes(1000)).error().code, ErrorCode::invalid_share) << share;
  }
}

TEST(Budget, FormatsBytes) {
  EXPECT_EQ(format_bytes(Bytes(0)), "0 B");
  EXPECT_EQ(format_bytes(Bytes(1023)), "1023 B");
  EXPECT_EQ(format_bytes(Bytes(1536)), "1.50 KiB");
  EXPECT_EQ(format_bytes(Bytes(std::uint64_t{6} << 30)), "6.00 GiB");
  EXPECT_EQ(format_bytes(Bytes::max()), "16.00 EiB");
}

}  // namespace
}  // namespace lowtide
