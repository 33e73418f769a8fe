#include "io/json_sections.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "graph/words.h"

namespace lowtide {
namespace {

constexpr std::size_t kBatchBytes = std::size_t{256} << 10;
constexpr std::size_t kMaxSections = 64;
constexpr std::size_t kMaxDepth = 8;  // nothing in our formats is deeper than 4

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

class Cutter {
 public:
  explicit Cutter(Text& text)
      : limits_(json_limits(text.file_size)), start_(text.chars.get()), at_(start_), end_(start_ + text.size) {}

  Result<std::vector<JsonSection>> run() {
    skip_space();
    if (!take('{')) return expected("'{'");
    skip_space();
    if (!take('}')) {
      do {
        if (Status status = cut_field(); !status.ok()) return status.error();
      } while (take(','));
      if (!take('}')) return expected("',' or '}'");
    }
    skip_space();
    if (at_ != end_) return expected("the end");
    return std::move(sections_);
  }

 private:
  template <typename... Parts>
  static Error malformed(const Parts&... parts) {
    return {ErrorCode::malformed_file, words(parts...)};
  }

  Error expected(std::string_view what) const {
    const std::string found =
        at_ == end_ ? "the text ends" : words("there is ", shown({at_, static_cast<std::size_t>(end_ - at_)}));
    return malformed("at byte ", at_ - start_, ": expected ", what, ", but ", found);
  }

  void skip_space() {
    while (at_ != end_ && is_space(*at_)) ++at_;
  }

  bool take(char wanted) {
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }

  Status cut_field() {
    skip_space();
    char* const key = at_;
    if (at_ == end_ || *at_ != '"') return expected("a field's name");
    if (!skip_string()) return malformed("the text ends within a string that begins at byte ", key - start_);
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

  // At a quote; afterwards behind the one that closes the string. False if there is none.
  bool skip_string() {
    ++at_;
    while (at_ != end_) {
      if (*at_ == '"') return ++at_, true;
      at_ += *at_ == '\\' && end_ - at_ > 1 ? 2 : 1;
    }
    return false;
  }

  Status cut_value(JsonSection& section) {
    std::size_t depth = 0;
    char* batch = at_;
    char* row = at_;
    bool empty = true;  // an array without any element
    for (; at_ != end_; ++at_) {
      switch (*at_) {
        case '"': {
          const char* const quote = at_;
          if (!skip_string()) {
            return malformed(shown(section.name), ": the text ends within a string that begins at byte ",
                             quote - start_);
          }
          --at_;
          empty = false;
          break;
        }
        case '[':
        case '{':
          if (++depth > kMaxDepth) return malformed(shown(section.name), ": nested deeper than ", kMaxDepth, " levels");
          if (Status status = count_item(section); !status.ok()) return status;
          if (depth > 1) empty = false;
          break;
        case ']':
        case '}':
          if (depth == 0) return close(section, empty);
          if (--depth > 0) break;
          if (Status status = check_row(section, row); !status.ok()) return status;
          ++at_;
          return close(section, empty);
        case ',':
          if (depth == 0) return close(section, empty);
          if (Status status = count_item(section); !status.ok()) return status;
          if (depth > 1 || !section.is_array()) break;
          if (Status status = check_row(section, row); !status.ok()) return status;
          row = at_;
          ++section.rows;
          empty = false;
          if (static_cast<std::size_t>(at_ - batch) >= kBatchBytes) section.cuts.push_back(batch = at_);
          break;
        default:
          if (empty && !is_space(*at_)) empty = false;
      }
    }
    return malformed("the text ends within field ", shown(section.name));
  }

  Status close(JsonSection& section, bool empty) {
    section.end = at_;
    if (section.begin == section.end) return expected("a value");
    const char last = section.end[-1];
    if (*section.begin == '[' && last != ']') return malformed(shown(section.name), ": a '[' that nothing closes");
    if (*section.begin == '{' && last != '}') return malformed(shown(section.name), ": a '{' that nothing closes");
    if (section.is_array() && empty) section.rows = 0;
    return Done{};
  }

  Status check_row(const JsonSection& section, const char* row) const {
    const auto size = static_cast<std::size_t>(at_ - row);
    if (size <= limits_.row_bytes || !section.is_array()) return Done{};
    return Error{ErrorCode::file_too_large,
                 words(shown(section.name), "[", section.rows - 1, "] has ", size, " bytes; at most ",
                       limits_.row_bytes, " are read in a file of ", "this size")};
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
