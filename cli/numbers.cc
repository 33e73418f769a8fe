#include "numbers.h"

#include <charconv>
#include <optional>

#include "base/words.h"

namespace lowtide::cli {
namespace {

template <typename Number>
std::optional<Number> read(const std::string& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  return failure == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

}  // namespace

Check whole_number(std::uint64_t least, std::uint64_t most) {
  return [=](const std::string& text) -> std::string {
    const std::optional<std::uint64_t> found = read<std::uint64_t>(text);
    if (found && *found >= least && *found <= most) return "";
    const bool any = most == std::numeric_limits<std::uint64_t>::max();
    return words("expected a whole number from ", least, any ? " on, below 2^64" : words(" to ", most), ", got '", text,
                 "'");
  };
}

Check number(double least, double most) {
  return [=](const std::string& text) -> std::string {
    const std::optional<double> found = read<double>(text);
    if (found && *found >= least && *found <= most) return "";  // never so of nan
    return words("expected a number from ", static_cast<std::int64_t>(least), " to ", static_cast<std::int64_t>(most),
                 ", got '", text, "'");
  };
}

}  // namespace lowtide::cli
