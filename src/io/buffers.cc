#include "lowtide/buffers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "graph/words.h"
#include "io/disk.h"
#include "io/formats.h"
#include "io/json_sections.h"
#include "lowtide/text_index.h"

namespace lowtide {
namespace {

constexpr std::array<std::string_view, 6> kColumns = {"id", "lower", "upper", "size", "alignment", "offset"};
constexpr std::size_t kRequired = 4;  // the first ones
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kPiece = 1 << 16;            // bytes, written at once
constexpr std::size_t kMostBuffers = kMaxIds / 2;  // so that steps can name every begin and end
constexpr Bytes kLastAddress{std::uint64_t{1} << 62};

using Fields = std::array<std::string_view, kColumns.size()>;  // by column; empty if it is not there

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Takes what is before the next `end` off the front of `text`.
std::string_view cut(std::string_view& text, char end) {
  const std::size_t found = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, found);
  text.remove_prefix(std::min(found + 1, text.size()));
  return part;
}

Error no_header(std::string_view why) {
  return {ErrorCode::wrong_format,
          words("its first line does not name the columns id, lower, upper, size and, if they are wanted, alignment "
                "and offset: ",
                why)};
}

// Which column each field of a line is.
Result<std::vector<std::size_t>> read_header(std::string_view line) {
  std::vector<std::size_t> columns;
  const auto fields = static_cast<std::size_t>(std::ranges::count(line, ',')) + 1;
  for (std::size_t i = 0; i < fields; ++i) {
    const std::string_view name = trimmed(cut(line, ','));
    const auto column = static_cast<std::size_t>(std::ranges::find(kColumns, name) - kColumns.begin());
    if (column == kColumns.size()) return no_header(words("there is no column ", shown(name)));
    if (std::ranges::find(columns, column) != columns.end()) return no_header(words(shown(name), " is there twice"));
    columns.push_back(column);
  }
  for (std::size_t column = 0; column < kRequired; ++column) {
    if (std::ranges::find(columns, column) == columns.end()) {
      return no_header(words("'", kColumns[column], "' is missing"));
    }
  }
  return columns;
}

Error wrong(std::size_t line, std::string_view what) {
  return {ErrorCode::malformed_file, words("line ", line, ": ", what)};
}

Result<Fields> split(std::string_view text, std::span<const std::size_t> columns, std::size_t line) {
  const auto count = static_cast<std::size_t>(std::ranges::count(text, ',')) + 1;
  if (count != columns.size()) {
    return wrong(line, words("it has ", count, " fields, but the first line names ", columns.size(), " columns"));
  }
  Fields fields;
  for (const std::size_t column : columns) fields[column] = trimmed(cut(text, ','));
  return fields;
}

// Reads the numbers of one line; the first that is none is kept as the error.
class Numbers {
 public:
  Numbers(const Fields& fields, std::size_t line) : fields_(fields), line_(line) {}

  std::uint64_t read(std::size_t column) {
    const std::string_view text = fields_[column];
    std::uint64_t number = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    if ((failure != std::errc() || end != text.data() + text.size()) && !error_) {
      error_ = wrong(
          line_, words(kColumns[column], " must be a whole number from 0 to 18446744073709551615, not ", shown(text)));
    }
    return number;
  }
  std::optional<std::uint64_t> read_if_given(std::size_t column) {
    if (fields_[column].empty()) return std::nullopt;
    return read(column);
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const Fields& fields_;
  std::size_t line_;
  std::optional<Error> error_;
};

Result<BufferRow> read_row(const Fields& fields, std::size_t line) {
  Numbers numbers(fields, line);
  BufferRow row{std::string(fields[0]), numbers.read(1), numbers.read(2), Bytes(numbers.read(3))};
  if (const auto alignment = numbers.read_if_given(4)) row.alignment = Bytes(*alignment);
  if (const auto offset = numbers.read_if_given(5)) row.offset = Bytes(*offset);
  if (numbers.error()) return *numbers.error();

  if (row.id.empty()) return wrong(line, "its id is empty");
  const auto wrong_row = [&](const auto&... why) { return wrong(line, words("buffer ", shown(row.id), why...)); };
  if (row.upper < row.lower) {
    return wrong_row(" lives from ", row.lower, " to ", row.upper, ", which is earlier");
  }
  if (row.alignment == Bytes(0)) return wrong_row(" has an alignment of 0");
  if (row.offset && row.offset->count() % row.alignment.count() != 0) {
    return wrong_row(" lies at offset ", *row.offset, ", which is no multiple of its alignment ", row.alignment);
  }
  if (row.offset.value_or(Bytes(0)) + row.size > kLastAddress || row.alignment > kLastAddress) {
    return Error{ErrorCode::size_overflow,
                 words("line ", line, ": buffer ", shown(row.id), " does not fit: addresses end at 2^62")};
  }
  return row;
}

Result<std::vector<BufferRow>> read_buffers(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const Result<std::vector<std::size_t>> columns = read_header(cut(text, '\n'));
  if (!columns.ok()) return columns.error();
  std::vector<BufferRow> rows;
  std::vector<std::size_t> lines;  // by row
  Lists<char> ids;
  TextIndex index;
  for (std::size_t line = 2; !text.empty(); ++line) {
    const std::string_view one = cut(text, '\n');
    if (trimmed(one).empty()) continue;
    if (rows.size() == kMostBuffers) {
      return Error{ErrorCode::too_many_objects, words("more than ", kMostBuffers, " buffers")};
    }
    const Result<Fields> fields = split(one, *columns, line);
    if (!fields.ok()) return fields.error();
    Result<BufferRow> row = read_row(*fields, line);
    if (!row.ok()) return row.error();
    const std::uint32_t number = index.intern(row->id, ids);
    if (number != rows.size()) {
      return wrong(line, words("there is a buffer ", shown(row->id), " already, in line ", lines[number]));
    }
    rows.push_back(*std::move(row));
    lines.push_back(line);
  }
  return rows;
}

Result<std::vector<BufferRow>> about_file(const std::string& subject, Result<std::vector<BufferRow>> rows) {
  if (!rows.ok()) return about(subject, rows.error());
  return rows;
}

void write_buffers(std::span<const BufferRow> rows, const Drain& drain) {
  const bool aligned = std::ranges::any_of(rows, [](const BufferRow& row) { return row.alignment != Bytes(1); });
  std::string text = aligned ? "id,lower,upper,size,alignment,offset\n" : "id,lower,upper,size,offset\n";
  for (const BufferRow& row : rows) {
    text += words(row.id, ",", row.lower, ",", row.upper, ",", row.size, ",");
    if (aligned) text += words(row.alignment, ",");
    if (row.offset) text += words(*row.offset);
    text += '\n';
    if (text.size() < kPiece) continue;
    drain(text);
    text.clear();
  }
  drain(text);
}

}  // namespace

Result<std::vector<BufferRow>> parse_buffers(std::string_view text) {
  return about_file("the text", read_buffers(text));
}

Result<std::vector<BufferRow>> load_buffers(const std::filesystem::path& path) {
  const Result<Text> text = read_text(path);
  if (!text.ok()) return text.error();
  return about_file(path.string(), read_buffers(text->view()));
}

std::string buffers_text(std::span<const BufferRow> rows) {
  std::string text;
  write_buffers(rows, [&](std::string_view piece) { text += piece; });
  return text;
}

Status save_buffers(std::span<const BufferRow> rows, const std::filesystem::path& path) {
  return write_text(path, [&](const Drain& drain) { write_buffers(rows, drain); });
}

std::vector<LayoutItem> to_items(std::span<const BufferRow> rows) {
  std::vector<std::uint64_t> moments;
  moments.reserve(2 * rows.size());
  for (const BufferRow& row : rows) moments.insert(moments.end(), {row.lower, row.upper});
  std::ranges::sort(moments);
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  const auto step = [&](std::uint64_t moment) {
    return StepIndex(static_cast<std::size_t>(std::ranges::lower_bound(moments, moment) - moments.begin()));
  };
  std::vector<LayoutItem> items;
  items.reserve(rows.size());
  for (const BufferRow& row : rows) {
    items.push_back({step(row.lower), step(row.upper), row.size, row.alignment, row.offset});
  }
  return items;
}

}  // namespace lowtide
