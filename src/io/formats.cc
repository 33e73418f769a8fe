#include "io/formats.h"

#include <algorithm>
#include <utility>

#include "base/words.h"

namespace lowtide {

Error about(const std::string& subject, Error error) {
  error.message = words(subject, ": ", error.message);
  return error;
}

Result<std::vector<JsonSection>> open_format(Text& text, std::string_view format,
                                             const std::vector<std::string_view>& known, const std::string& subject) {
  Result<std::vector<JsonSection>> sections = cut_sections(text);
  if (!sections.ok()) return about(subject, sections.error());

  const JsonSection* const named = find_section(*sections, "format");
  if (named == nullptr) {
    return Error{ErrorCode::wrong_format, words(subject, " is no ", format, ": it has no field 'format'")};
  }
  if (named->text() != words("\"", format, "\"")) {
    return Error{ErrorCode::wrong_format, words(subject, " is no ", format, ": its format is ", shown(named->text()))};
  }
  const JsonSection* const version = find_section(*sections, "version");
  if (version == nullptr) {
    return Error{ErrorCode::wrong_format_version, words(subject, " is ", format, " of no version")};
  }
  if (version->text() != words(kFormatVersion)) {
    std::string found = shown(version->text());
    return Error{ErrorCode::wrong_format_version,
                 words(subject, " is ", format, " version ", found.substr(1, found.size() - 2),
                       "; this lowtide reads version ", kFormatVersion)};
  }
  for (const JsonSection& section : *sections) {
    if (section.name == "format" || section.name == "version" ||
        std::ranges::find(known, section.name) != known.end()) {
      continue;
    }
    std::string names = "format, version";
    for (const std::string_view name : known) names += words(", ", name);
    return Error{ErrorCode::malformed_file,
                 words(subject, ": there is no field ", shown(section.name), "; there are ", names)};
  }
  return sections;
}

}  // namespace lowtide
