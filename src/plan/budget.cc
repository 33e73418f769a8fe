#include "lowtide/budget.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <span>

#include "base/words.h"

namespace lowtide {
namespace {

__extension__ using Wide = unsigned __int128;

struct AmountUnit {
  std::string_view name;
  std::uint64_t count;
};

constexpr AmountUnit kByteUnits[] = {
    {"B", 1},
    {"kB", 1'000},
    {"KB", 1'000},
    {"MB", 1'000'000},
    {"GB", 1'000'000'000},
    {"TB", 1'000'000'000'000},
    {"PB", 1'000'000'000'000'000},
    {"KiB", std::uint64_t{1} << 10},
    {"MiB", std::uint64_t{1} << 20},
    {"GiB", std::uint64_t{1} << 30},
    {"TiB", std::uint64_t{1} << 40},
    {"PiB", std::uint64_t{1} << 50},
};

constexpr AmountUnit kTimeUnits[] = {
    {"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}, {"min", 60'000'000'000},
};

constexpr std::size_t kMaxDigits = 20;  // their product with the largest unit, 10^20 * 2^50, still fits 128 bits

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

template <typename... Why>
Error refuse(std::string_view text, const Why&... why) {
  return {ErrorCode::invalid_amount, words("'", text, "' is not an amount: ", why...)};
}

std::string names(std::span<const AmountUnit> units) {
  std::string joined;
  for (const AmountUnit& unit : units) joined += words(joined.empty() ? "" : ", ", unit.name);
  return joined;
}

// `text` in counts of the smallest unit, exactly.
Result<std::uint64_t> parse(std::string_view text, std::span<const AmountUnit> units, bool needs_unit) {
  std::size_t at = 0;
  std::string digits;
  std::size_t decimals = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) digits += text[at];
  if (digits.empty()) return refuse(text, "it does not begin with a digit");
  if (at < text.size() && text[at] == '.') {
    for (++at; at < text.size() && is_digit(text[at]); ++at, ++decimals) digits += text[at];
    if (decimals == 0) return refuse(text, "no digit follows the point");
  }
  while (decimals > 0 && digits.back() == '0') {
    digits.pop_back();
    --decimals;
  }
  digits.erase(0, digits.find_first_not_of('0'));
  if (digits.size() > kMaxDigits || decimals > kMaxDigits) {
    return refuse(text, "it has more than ", kMaxDigits, " digits");
  }

  if (at < text.size() && text[at] == ' ') ++at;
  const std::string_view name = text.substr(at);
  if (name.empty() && (needs_unit || text.back() == ' ')) {
    return refuse(text, "a unit is missing, one of ", names(units));
  }
  std::uint64_t unit = name.empty() ? 1 : 0;
  for (const AmountUnit& candidate : units) {
    if (candidate.name == name) unit = candidate.count;
  }
  if (unit == 0) return refuse(text, "'", name, "' is none of the units ", names(units));

  Wide amount = 0;
  for (const char digit : digits) amount = amount * 10 + static_cast<unsigned>(digit - '0');
  amount *= unit;
  for (; decimals > 0; --decimals) {
    if (amount % 10 != 0) return refuse(text, "it is no whole number of ", units.front().name);
    amount /= 10;
  }
  if (amount > Bytes::max().count()) return refuse(text, "it is more than 2^64 - 1 ", units.front().name);
  return static_cast<std::uint64_t>(amount);
}

// Digits, perhaps with a point among them, and nothing else.
std::optional<double> plain_number(std::string_view text) {
  double number = 0.0;
  if (text.empty() || text.find_first_not_of("0123456789.") != text.npos) return std::nullopt;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, number, std::chars_format::fixed).ptr != end) return std::nullopt;
  return number;
}

// What somebody may have meant who wrote a number without a unit as a budget of memory.
std::string meant_by(std::string_view text, double number) {
  constexpr double kSurelyBytes = 1e6;
  if (number == 0.0) return ", and a budget is above 0";
  if (number <= 1.0 && text.find('.') != text.npos) {
    std::array<char, 32> percent{};
    std::snprintf(percent.data(), percent.size(), "%.6g%%", 100.0 * number);
    return words(": did you mean '", percent.data(), "', a share of what eager needs?");
  }
  if (number >= kSurelyBytes) return words(": did you mean '", text, "B'?");
  if (number > 100.0) return words(": did you mean '", text, "MiB'?");
  return words(": did you mean '", text, "MiB', or '", text, "%' of what eager needs?");
}

}  // namespace

Result<Bytes> resolve(const Budget& budget, Bytes whole) {
  if (const Bytes* bytes = std::get_if<Bytes>(&budget)) return *bytes;
  const double share = std::get_if<Share>(&budget)->of_whole;
  if (!(share > 0.0 && share <= 1.0)) {
    return Error{ErrorCode::invalid_share, words("a share must be above 0 and at most 1, not ", std::to_string(share))};
  }
  // Graphs hold less than 2^63 bytes, so the product is in range of the conversion.
  const double part = std::floor(share * static_cast<double>(whole.count()));
  return std::min(whole, Bytes(static_cast<std::uint64_t>(part)));
}

Result<Bytes> parse_bytes(std::string_view text) {
  const Result<std::uint64_t> count = parse(text, kByteUnits, false);
  if (!count.ok()) return count.error();
  return Bytes(*count);
}

Result<Budget> parse_budget(std::string_view text) {
  if (const std::optional<double> bare = plain_number(text)) {
    return refuse(text, "a unit is missing", meant_by(text, *bare));
  }
  if (text.ends_with('%')) {
    std::string_view number = text.substr(0, text.size() - 1);
    if (number.ends_with(' ')) number.remove_suffix(1);
    const std::optional<double> percent = plain_number(number);
    if (!percent) return refuse(text, "what stands before '%' is no number");
    const Share share{*percent / 100.0};
    if (const Result<Bytes> resolved = resolve(share, Bytes(0)); !resolved.ok()) return resolved.error();
    return Budget(share);
  }
  const Result<Bytes> bytes = parse_bytes(text);
  if (!bytes.ok()) return bytes.error();
  if (*bytes == Bytes(0)) return refuse(text, "a budget is above 0");
  return Budget(*bytes);
}

Result<Nanos> parse_duration(std::string_view text) {
  const Result<std::uint64_t> count = parse(text, kTimeUnits, true);
  if (!count.ok()) return count.error();
  return Nanos(*count);
}

Result<Nanos> parse_time_budget(std::string_view text) {
  const Result<Nanos> parsed = parse_duration(text);
  if (parsed.ok() && *parsed == Nanos(0)) return refuse(text, "a budget is above 0");
  return parsed;
}

Result<Bytes> parse_rate(std::string_view text) {
  constexpr std::string_view kEach = "/s";
  if (!text.ends_with(kEach)) return refuse(text, "a rate is bytes a second, such as '16GB/s'");
  const Result<Bytes> bytes = parse_bytes(text.substr(0, text.size() - kEach.size()));
  if (bytes.ok() && *bytes == Bytes(0)) return refuse(text, "a rate is above 0");
  return bytes;
}

std::string format_bytes(Bytes bytes) {
  constexpr std::array kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < Bytes(1024)) return words(bytes, " B");
  auto amount = static_cast<double>(bytes.count());
  std::size_t unit = 0;
  while (amount >= 1024.0 && unit + 1 < kNames.size()) {
    amount /= 1024.0;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %s", amount, kNames[unit]);
  return text;
}

}  // namespace lowtide
