// buffer_formats.h: buffers between text and rows, as CSV and as JSON. docs/formats.md is the schema.
//
// A format reads what a row says; whether a row makes sense, and fits to the others, the table decides for both.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/disk.h"
#include "io/text.h"
#include "lowtide/buffers.h"
#include "lowtide/text_index.h"

namespace lowtide {

// Where a row was read, as messages have it: "line 3" of CSV, "buffers[3]" of JSON.
struct Place {
  enum Kind : bool { line, element } kind;
  std::size_t number;

  std::string text() const;
};

Error wrong_buffer(Place place, std::string_view what);  // E603

// Rows, each checked as it is added. E107, E401 or E603.
class BufferTable {
 public:
  Status add(BufferRow row, Place place);
  std::vector<BufferRow> rows() && { return std::move(rows_); }

 private:
  std::vector<BufferRow> rows_;
  std::vector<Place> places_;  // by row
  Lists<char> ids_;
  TextIndex index_;
};

// Without the blanks around it.
std::string_view trimmed(std::string_view text);

bool is_buffers_json(std::string_view text);  // otherwise it should be CSV
Result<std::vector<BufferRow>> read_buffers_csv(std::string_view text);
Result<std::vector<BufferRow>> read_buffers_json(Text text);
void write_buffers_csv(std::span<const BufferRow> rows, const Drain& drain);
void write_buffers_json(std::span<const BufferRow> rows, const Drain& drain);

}  // namespace lowtide
