#include "eager/allocator_settings.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <span>
#include <string>
#include <vector>

namespace lowtide {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::invalid_setting, std::move(message)};
}

// "key:[a:1,b:2],other:3": the marks are tokens, and so is what is between them.
std::vector<std::string_view> tokens_of(std::string_view text) {
  constexpr std::string_view kMarks = ",:[]";
  std::vector<std::string_view> tokens;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = std::min(text.find_first_of(kMarks, at), text.size());
    const std::size_t length = mark == at ? 1 : mark - at;
    std::string_view token = text.substr(at, length);
    at += length;
    constexpr std::string_view kSpace = " \t\n\r\f\v";
    token.remove_prefix(std::min(token.find_first_not_of(kSpace), token.size()));
    token.remove_suffix(token.size() - (token.find_last_not_of(kSpace) + 1));
    if (!token.empty()) tokens.push_back(token);
  }
  return tokens;
}

// Reads "key:value" pairs off the tokens. The first thing that is wrong is what is said in the end.
class Reader {
 public:
  Reader(std::string_view text, std::vector<std::string_view> tokens) : text_(text), tokens_(std::move(tokens)) {}

  Result<AllocatorSettings> read() {
    while (!failed() && !at_end()) {
      const std::string_view key = next();
      expect(":");
      if (!failed()) read_value(key);
      if (!failed() && !at_end()) expect(",");
    }
    if (failed()) return invalid("allocator settings '" + std::string(text_) + "': " + problem_);
    if (const Status status = check(settings_); !status.ok()) return status.error();
    return settings_;
  }

 private:
  void read_value(std::string_view key) {
    if (key == "expandable_segments") {
      const std::string_view value = next();
      settings_.expandable_segments = value == "True";
      if (value != "True" && value != "False") fail("expandable_segments is True or False", value);
    } else if (key == "large_segment_size_mb") {
      settings_.large_segment_size = mebibytes();
    } else if (key == "max_split_size_mb") {
      settings_.max_split_size = mebibytes();
    } else if (key == "max_non_split_rounding_mb") {
      settings_.max_non_split_rounding = mebibytes();
    } else if (key == "garbage_collection_threshold") {
      settings_.garbage_collection_threshold = number<double>();
      if (settings_.garbage_collection_threshold == 0) fail("garbage_collection_threshold is above 0", "0");
    } else if (key == "per_process_memory_fraction") {
      settings_.per_process_memory_fraction = number<double>();
    } else if (key == "roundup_power2_divisions") {
      read_divisions();
    } else if (key == "backend") {
      if (const std::string_view value = next(); value != "native") fail("only the backend native is simulated", value);
    } else if (is_indifferent(key)) {
      next();
    } else {
      problem_ = "there is no setting '" + std::string(key) + "'";
    }
  }

  // One number for all sizes, or "[256:1,512:2,>:8]": sizes in MiB, of which the first stands for smaller ones too.
  void read_divisions() {
    auto& divisions = settings_.roundup_power2_divisions;
    if (peek() != "[") {
      divisions.fill(number<std::uint64_t>());
      return;
    }
    next();
    std::size_t last = 0;
    for (bool first = true; !failed() && peek() != "]"; first = false) {
      if (!first) expect(",");
      const bool rest = peek() == ">";
      const std::uint64_t size = rest ? (next(), 1) : number<std::uint64_t>();
      expect(":");
      const std::uint64_t count = number<std::uint64_t>();
      if (failed()) return;
      if (rest) {
        std::ranges::fill(std::span(divisions).subspan(last + 1), count);
        continue;
      }
      if (!std::has_single_bit(size)) return fail("sizes are powers of two", std::to_string(size));
      last = std::min<std::size_t>(static_cast<std::size_t>(std::countr_zero(size)), divisions.size() - 1);
      if (first) std::ranges::fill(std::span(divisions).first(last), count);
      divisions[last] = count;
    }
    expect("]");
  }

  // About host memory, threads or errors.
  static bool is_indifferent(std::string_view key) {
    return key.starts_with("pinned_") || key == "release_lock_on_cudamalloc" || key == "release_lock_on_hipmalloc" ||
           key == "throw_on_cudamalloc_oom" || key == "graph_capture_record_stream_reuse" ||
           key == "expandable_segments_handle_type";
  }

  Bytes mebibytes() {
    const auto count = number<std::uint64_t>();
    return Bytes(std::min(count, Bytes::max().count() / kMiB) * kMiB);
  }

  template <typename Number>
  Number number() {
    const std::string_view token = next();
    Number value{};
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (error != std::errc() || end != token.data() + token.size()) fail("a number is wanted", token);
    return value;
  }

  void expect(std::string_view mark) {
    if (failed()) return;
    if (peek() != mark) return fail(std::string(mark) + " is wanted", peek());
    next();
  }

  bool at_end() const { return at_ == tokens_.size(); }
  std::string_view peek() const { return at_end() ? std::string_view() : tokens_[at_]; }
  std::string_view next() { return at_end() ? std::string_view() : tokens_[at_++]; }
  bool failed() const { return !problem_.empty(); }
  void fail(std::string what, std::string_view token) {
    if (!failed()) problem_ = std::move(what.append(", not '").append(token).append("'"));
  }

  std::string_view text_;
  std::vector<std::string_view> tokens_;
  std::size_t at_ = 0;
  std::string problem_;
  AllocatorSettings settings_;
};

// Up to the next of `divisions` steps between two powers of two: with 4, 1200 becomes 1280.
std::uint64_t to_next_division(std::uint64_t size, std::uint64_t divisions) {
  return round_up(size, std::bit_floor(size) / divisions);
}

}  // namespace

Status check(const AllocatorSettings& settings) {
  const Bytes segment = settings.large_segment_size;
  if (segment.count() % kMiB != 0) {
    return invalid("large_segment_size is " + std::to_string(segment.count()) + " bytes, not whole MiB");
  }
  // Requests of less than 10 MiB must fit; and nothing that is larger than a device is of use.
  if (segment <= Bytes(10 * kMiB) || segment > Bytes(kMiB << 20)) {
    return invalid("large_segment_size_mb is " + std::to_string(segment.count() / kMiB) + ", not 11 to 1048576");
  }
  if (settings.max_split_size != Bytes::max() && settings.max_split_size.count() % kMiB != 0) {
    return invalid("max_split_size is " + std::to_string(settings.max_split_size.count()) + " bytes, not whole MiB");
  }
  if (settings.max_split_size < segment) {
    return invalid("max_split_size_mb is " + std::to_string(settings.max_split_size.count() / kMiB) +
                   ", less than large_segment_size_mb, which is " + std::to_string(segment.count() / kMiB));
  }
  if (settings.max_non_split_rounding < segment) {
    return invalid("max_non_split_rounding_mb is " + std::to_string(settings.max_non_split_rounding.count() / kMiB) +
                   ", less than large_segment_size_mb, which is " + std::to_string(segment.count() / kMiB));
  }
  if (!(settings.garbage_collection_threshold >= 0 && settings.garbage_collection_threshold < 1)) {
    return invalid("garbage_collection_threshold is " + std::to_string(settings.garbage_collection_threshold) +
                   ", not between 0 and 1");
  }
  if (!(settings.per_process_memory_fraction >= 0 && settings.per_process_memory_fraction <= 1)) {
    return invalid("per_process_memory_fraction is " + std::to_string(settings.per_process_memory_fraction) +
                   ", not between 0 and 1");
  }
  for (const std::uint64_t count : settings.roundup_power2_divisions) {
    if (count != 0 && !std::has_single_bit(count)) {
      return invalid("roundup_power2_divisions has " + std::to_string(count) + ", which is not a power of two");
    }
  }
  return Done{};
}

Result<AllocatorSettings> parse_allocator_settings(std::string_view text) {
  return Reader(text, tokens_of(text)).read();
}

std::uint64_t rounded_request(const AllocatorSettings& settings, std::uint64_t size) {
  if (size < kMinBlock) return kMinBlock;
  const auto& table = settings.roundup_power2_divisions;
  const std::size_t octave = static_cast<std::size_t>(std::bit_width(std::max(size, kMiB) / kMiB)) - 1;
  const std::uint64_t divisions = table[std::min(octave, table.size() - 1)];
  // `size / kMinBlock >= divisions` and a rest: more than that many blocks, without overflow.
  if (divisions > 1 && (size - 1) / kMinBlock >= divisions) return to_next_division(size, divisions);
  return round_up(size, kMinBlock);
}

}  // namespace lowtide
