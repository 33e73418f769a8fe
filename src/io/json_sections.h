// json_sections.h: a JSON text cut into the fields of its outermost object, and long arrays into batches of rows.
//
// A parser's table for a whole file is several times as large as the file. So the text is cut first, in one pass that
// looks at brackets, strings and commas only, and then parsed one batch at a time (json_rows.h):
//
//   {"format": "lowtide-graph", "version": 1, "ops": [{...}, {...}, {...}]}
//                                             section [  batch      ,batch]
//
// What lies inside a section is not yet looked at: that it is JSON, the parser finds out. The fields may come in any
// order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/text.h"
#include "lowtide/status.h"

namespace lowtide {

struct JsonSection {
  std::string_view name;
  char* begin;              // the value's first byte. The byte before it is no part of it and may be overwritten,
  char* end;                // and so may the byte here, just behind the value
  std::vector<char*> cuts;  // the commas between batches, in an array
  std::size_t rows = 0;     // how many elements, if it is an array; otherwise 1

  bool is_array() const { return *begin == '['; }
  std::string_view text() const { return {begin, static_cast<std::size_t>(end - begin)}; }
};

// What a text may hold: more than enough for whoever writes graphs, and too little to be a burden to who reads them. A
// compressed file can describe much more than it is large, so these grow with the size of the file.
struct JsonLimits {
  std::size_t items;      // commas and brackets in all
  std::size_t row_bytes;  // one element of an array, or another field as a whole
};
JsonLimits json_limits(std::size_t file_size);

// The fields that the object in `text` has, each at most once. E402 or E603.
Result<std::vector<JsonSection>> cut_sections(Text& text);

// The section of that name, or none.
const JsonSection* find_section(const std::vector<JsonSection>& sections, std::string_view name);

// Outside text as a message can show it: short, and printable whatever it was.
std::string shown(std::string_view text);

}  // namespace lowtide
