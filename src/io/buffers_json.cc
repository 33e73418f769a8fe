#include <utility>

#include "base/words.h"
#include "io/buffer_formats.h"
#include "io/json_rows.h"
#include "io/json_sections.h"
#include "io/json_writer.h"

namespace lowtide {
namespace {

constexpr std::string_view kList = "buffers";

// The list of buffers, in an object that has nothing else.
Result<JsonSection> find_list(const std::vector<JsonSection>& sections) {
  // A graph has a list of that name too.
  if (const JsonSection* const format = find_section(sections, "format")) {
    return Error{ErrorCode::wrong_format, words("its format is ", shown(format->text()), ", but buffers have none")};
  }
  for (const JsonSection& section : sections) {
    if (section.name == kList) continue;
    return Error{ErrorCode::malformed_file,
                 words("there is no field ", shown(section.name), "; the only one is ", kList)};
  }
  if (sections.empty()) return Error{ErrorCode::wrong_format, words("it has no list '", kList, "'")};
  return sections.front();
}

}  // namespace

bool is_buffers_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != text.npos && (text[first] == '{' || text[first] == '[');  // a list is refused as what it is
}

Result<std::vector<BufferRow>> read_buffers_json(Text text) {
  const Result<std::vector<JsonSection>> sections = cut_sections(text);
  if (!sections.ok()) return sections.error();
  const Result<JsonSection> list = find_list(*sections);
  if (!list.ok()) return list.error();
  std::string_view id;
  std::uint64_t lower = 0;
  std::uint64_t upper = 0;
  std::uint64_t size = 0;
  std::optional<std::uint64_t> alignment;
  std::optional<std::uint64_t> offset;
  JsonRows rows(&*list, JsonShape::list,
                {{"id", &id, JsonField::required},
                 {"lower", &lower, JsonField::required},
                 {"upper", &upper, JsonField::required},
                 {"size", &size, JsonField::required},
                 {"alignment", &alignment},
                 {"offset", &offset}});
  BufferTable table;
  while (true) {
    alignment.reset();
    offset.reset();
    const Result<bool> more = rows.next();
    if (!more.ok()) return more.error();
    if (!*more) return std::move(table).rows();
    BufferRow row{std::string(id), lower, upper, Bytes(size), Bytes(alignment.value_or(1))};
    if (offset) row.offset = Bytes(*offset);
    if (Status status = table.add(std::move(row), {Place::element, rows.index()}); !status.ok()) return status.error();
  }
}

void write_buffers_json(std::span<const BufferRow> rows, const Drain& drain) {
  JsonWriter out(drain);
  out.open();
  out.open_list(kList);
  for (const BufferRow& row : rows) {
    out.open_row();
    out.field("id", row.id);
    out.field("lower", row.lower);
    out.field("upper", row.upper);
    out.field("size", row.size);
    if (row.alignment != Bytes(1)) out.field("alignment", row.alignment);
    if (row.offset) out.field("offset", *row.offset);
    out.close_row();
  }
  out.close_list();
  out.close();
}

}  // namespace lowtide
