#include "io/formats.h"

#include <algorithm>
#include <utility>

#include "base/words.h"

namespace lowtide {

Error about(const std::string& subject, Error error) {
  error.message = words(subject, ": ", error.message);
  return error;
}

Result<FormatText> open_format(Text& text, std::string_view format,
                               const std::vector<std::vector<std::string_view>>& known, const std::string& subject) {
  Result<std::vector<JsonSection>> sections = cut_sections(text);
  if (!sections.ok()) return about(subject, sections.error());

  const JsonSection* const named = find_section(*sections, "format");
  if (named == nullptr) {
    return Error{ErrorCode::wrong_format, words(subject, " is no ", format, ": it has no field 'format'")};
  }
  if (named->text() != words("\"", format, "\"")) {
    return Error{ErrorCode::wrong_format, words(subject, " is no ", format, ": its format is ", shown(named->text()))};
  }
  const JsonSection* const stated = find_section(*sections, "version");
  if (stated == nullptr) {
    return Error{ErrorCode::wrong_format_version, words(subject, " is ", format, " of no version")};
  }
  std::size_t version = 1;
  while (version <= known.size() && stated->text() != words(version)) ++version;
  if (version > known.size()) {
    std::string found = shown(stated->text());
    return Error{ErrorCode::wrong_format_version,
                 words(subject, " is ", format, " version ", found.substr(1, found.size() - 2),
                       "; this lowtide reads version", known.size() > 1 ? words("s 1 to ", known.size()) : " 1")};
  }
  const std::vector<std::string_view>& known_here = known[version - 1];
  for (const JsonSection& section : *sections) {
    if (section.name == "format" || section.name == "version" ||
        std::ranges::find(known_here, section.name) != known_here.end()) {
      continue;
    }
    std::string names = "format, version";
    for (const std::string_view name : known_here) names += words(", ", name);
    return Error{ErrorCode::malformed_file,
                 words(subject, ": there is no field ", shown(section.name), "; there are ", names)};
  }
  return FormatText{version, *std::move(sections)};
}

}  // namespace lowtide
