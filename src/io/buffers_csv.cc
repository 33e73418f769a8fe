#include <algorithm>
#include <array>
#include <charconv>

#include "base/words.h"
#include "io/buffer_formats.h"
#include "io/json_sections.h"

namespace lowtide {
namespace {

constexpr std::array<std::string_view, 6> kColumns = {"id", "lower", "upper", "size", "alignment", "offset"};
constexpr std::size_t kRequired = 4;  // the first ones
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kCsvAtOnce = 1 << 16;  // bytes, written at once

using Fields = std::array<std::string_view, kColumns.size()>;  // by column; empty if it is not there

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

Result<Fields> split(std::string_view text, std::span<const std::size_t> columns, Place place) {
  const auto count = static_cast<std::size_t>(std::ranges::count(text, ',')) + 1;
  if (count != columns.size()) {
    return wrong_buffer(place,
                        words("it has ", count, " fields, but the first line names ", columns.size(), " columns"));
  }
  Fields fields;
  for (const std::size_t column : columns) fields[column] = trimmed(cut(text, ','));
  return fields;
}

// Reads the numbers of one line; the first that is none is kept as the error.
class Numbers {
 public:
  Numbers(const Fields& fields, Place place) : fields_(fields), place_(place) {}

  std::uint64_t read(std::size_t column) {
    const std::string_view text = fields_[column];
    std::uint64_t number = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    if ((failure != std::errc() || end != text.data() + text.size()) && !error_) {
      error_ = wrong_buffer(
          place_, words(kColumns[column], " must be a whole number from 0 to 18446744073709551615, not ", shown(text)));
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
  Place place_;
  std::optional<Error> error_;
};

Result<BufferRow> read_row(const Fields& fields, Place place) {
  Numbers numbers(fields, place);
  BufferRow row{std::string(fields[0]), numbers.read(1), numbers.read(2), Bytes(numbers.read(3))};
  if (const auto alignment = numbers.read_if_given(4)) row.alignment = Bytes(*alignment);
  if (const auto offset = numbers.read_if_given(5)) row.offset = Bytes(*offset);
  if (numbers.error()) return *numbers.error();
  return row;
}

}  // namespace

Result<std::vector<BufferRow>> read_buffers_csv(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const Result<std::vector<std::size_t>> columns = read_header(cut(text, '\n'));
  if (!columns.ok()) return columns.error();
  BufferTable table;
  for (std::size_t line = 2; !text.empty(); ++line) {
    const std::string_view one = cut(text, '\n');
    if (trimmed(one).empty()) continue;
    const Place place{Place::line, line};
    const Result<Fields> fields = split(one, *columns, place);
    if (!fields.ok()) return fields.error();
    Result<BufferRow> row = read_row(*fields, place);
    if (!row.ok()) return row.error();
    if (Status status = table.add(*std::move(row), place); !status.ok()) return status.error();
  }
  return std::move(table).rows();
}

void write_buffers_csv(std::span<const BufferRow> rows, const Drain& drain) {
  const bool aligned = std::ranges::any_of(rows, [](const BufferRow& row) { return row.alignment != Bytes(1); });
  std::string text = aligned ? "id,lower,upper,size,alignment,offset\n" : "id,lower,upper,size,offset\n";
  for (const BufferRow& row : rows) {
    text += words(row.id, ",", row.lower, ",", row.upper, ",", row.size, ",");
    if (aligned) text += words(row.alignment, ",");
    if (row.offset) text += words(*row.offset);
    text += '\n';
    if (text.size() < kCsvAtOnce) continue;
    drain(text);
    text.clear();
  }
  drain(text);
}

}  // namespace lowtide
