#include "io/json_sections.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/words.h"

namespace lowtide {
namespace {

constexpr std::size_t kBatchBytes = std::size_t{256} << 10;
constexpr std::size_t kMaxSections = 64;
constexpr std::size_t kMaxDepth = 8;  // nothing in our formats is deeper than 4

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

// 1 or 0, as bytes and without branches: so compilers look at many characters at once.
using Flag = unsigned char;
struct IsStructure {
  Flag operator()(char c) const {
    return static_cast<Flag>((c == '"') | (c == '[') | (c == ']') | (c == '{') | (c == '}') | (c == ','));
  }
};
struct EndsOrEscapes {
  Flag operator()(char c) const { return static_cast<Flag>((c == '"') | (c == '\\')); }
};

class Cutter {
 public:
  explicit Cutter(Text& text)
      : limits_(json_limits(text.file_size)), start_(text.chars.get()), at_(start_), end_(start_ + text.size) {}

  Result<std::vector<JsonSection>> run() {
    begin_piece();
    skip_space();
    if (!take('{')) return expected("'{'");
    skip_space();
    if (!take('}')) {
      do {
        if (Status status = cut_field(); !status.ok()) return status.error();
      } while (take(','));
      if (!take('}')) return expected("',' or '}'");
    }
    begin_piece();
    skip_space();
    if (at_ != end_) return expected("the end");
    return std::move(sections_);
  }

 private:
  template <typename... Parts>
  static Error malformed(const Parts&... parts) {
    return {ErrorCode::malformed_file, words(parts...)};
  }

  // No piece of the text, such as an element of an array, may be longer than that: nothing looks beyond its limit.
  void begin_piece() {
    stop_ = static_cast<std::size_t>(end_ - at_) > limits_.row_bytes ? at_ + limits_.row_bytes + 1 : end_;
  }

  // Why the text cannot be followed any further: it ends within `what`, or that is too long.
  Error stopped(std::string_view what) const {
    if (stop_ == end_) return malformed("the text ends within ", what);
    return {ErrorCode::file_too_large, words(what, " has more than ", limits_.row_bytes,
                                             " bytes, the most that are read in one piece of a file of this size")};
  }

  Error expected(std::string_view what) const {
    if (at_ == stop_ && stop_ != end_) return stopped("the space between two fields");
    const std::string found =
        at_ == end_ ? "the text ends" : words("there is ", shown({at_, static_cast<std::size_t>(end_ - at_)}));
    return malformed("at byte ", at_ - start_, ": expected ", what, ", but ", found);
  }

  void skip_space() {
    while (at_ != stop_ && is_space(*at_)) ++at_;
  }

  bool take(char wanted) {
    if (at_ == stop_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }

  Status cut_field() {
    begin_piece();
    skip_space();
    char* const key = at_;
    if (at_ == stop_ || *at_ != '"') return expected("a field's name");
    if (!skip_string()) return stopped(words("a string that begins at byte ", key - start_));
    const std::string_view name(key + 1, static_cast<std::size_t>(at_ - key - 2));
    if (find_section(sections_, name) != nullptr) return malformed("field ", shown(name), " is given twice");
    if (sections_.size() == kMaxSections) return malformed("more than ", kMaxSections, " fields");
    skip_space();
    if (!take(':')) return expected("':'");
    skip_space();
    JsonSection section{.name = name, .begin = at_, .end = at_, .cuts = {}, .rows = 1};
    if (Status status = cut_value(section); !status.ok()) return status;
    sections_.push_back(std::move(section));
    skip_space();
    return Done{};
  }

  // To the next byte that `is` so, or to the end of the piece. Most are near; who pads a file with megabytes has them
  // passed over in strides.
  template <typename Is>
  void skip_until(Is is) {
    constexpr std::ptrdiff_t kNear = 16;
    constexpr std::ptrdiff_t kStride = 64;
    for (const char* const near = stop_ - at_ > kNear ? at_ + kNear : stop_; at_ != near; ++at_) {
      if (is(*at_)) return;
    }
    while (stop_ - at_ >= kStride) {
      Flag any = 0;
      for (std::ptrdiff_t i = 0; i < kStride; ++i) any = any | is(at_[i]);
      if (any) break;
      at_ += kStride;
    }
    while (at_ != stop_ && !is(*at_)) ++at_;
  }

  // At a quote; afterwards behind the one that closes the string. False if there is none.
  bool skip_string() {
    ++at_;
    while (true) {
      skip_until(EndsOrEscapes());
      if (at_ == stop_) return false;
      if (*at_ == '"') return ++at_, true;
      at_ += stop_ - at_ > 1 ? 2 : 1;
    }
  }

  std::string here(const JsonSection& section) const {
    return section.begin != end_ && section.is_array() ? words(shown(section.name), "[", section.rows - 1, "]")
                                                       : shown(section.name);
  }

  Status cut_value(JsonSection& section) {
    std::size_t depth = 0;
    char* batch = at_;
    for (; skip_until(IsStructure()), at_ != stop_; ++at_) {
      switch (*at_) {
        case '"':
          if (!skip_string()) return stopped(here(section));
          --at_;
          break;
        case '[':
        case '{':
          if (++depth > kMaxDepth) return malformed(shown(section.name), ": nested deeper than ", kMaxDepth, " levels");
          if (Status status = count_item(section); !status.ok()) return status;
          break;
        case ']':
        case '}':
          if (depth == 0) return close(section);
          if (--depth > 0) break;
          ++at_;
          return close(section);
        case ',':
          if (depth == 0) return close(section);
          if (Status status = count_item(section); !status.ok()) return status;
          if (depth > 1 || !section.is_array()) break;
          begin_piece();
          ++section.rows;
          if (static_cast<std::size_t>(at_ - batch) >= kBatchBytes) section.cuts.push_back(batch = at_);
          break;
      }
    }
    return stopped(here(section));
  }

  Status close(JsonSection& section) {
    section.end = at_;
    if (section.begin == section.end) return expected("a value");
    const char last = section.end[-1];
    if (*section.begin == '[' && last != ']') return malformed(shown(section.name), ": a '[' that nothing closes");
    if (*section.begin == '{' && last != '}') return malformed(shown(section.name), ": a '{' that nothing closes");
    if (section.is_array() && std::all_of(section.begin + 1, section.end - 1, is_space)) section.rows = 0;
    return Done{};
  }

  Status count_item(const JsonSection& section) {
    if (++items_ <= limits_.items) return Done{};
    return Error{ErrorCode::file_too_large, words(shown(section.name), ": the file holds more than ", limits_.items,
                                                  " items, the most that are read in a file of this size")};
  }

  JsonLimits limits_;
  char* start_;
  char* at_;
  char* end_;
  char* stop_ = end_;  // where the current piece must have ended
  std::size_t items_ = 0;
  std::vector<JsonSection> sections_;
};

}  // namespace

JsonLimits json_limits(std::size_t file_size) {
  return {.items = (std::size_t{256} << 10) + 4 * file_size, .row_bytes = (std::size_t{2} << 20) + file_size / 2};
}

Result<std::vector<JsonSection>> cut_sections(Text& text) {
  return Cutter(text).run();
}

const JsonSection* find_section(const std::vector<JsonSection>& sections, std::string_view name) {
  const auto found = std::ranges::find(sections, name, &JsonSection::name);
  return found == sections.end() ? nullptr : &*found;
}

std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 32;
  std::string printable = "'";
  for (const char c : text.substr(0, kShown)) printable += c >= ' ' && c <= '~' ? c : '?';
  return printable += text.size() > kShown ? "...'" : "'";
}

}  // namespace lowtide
