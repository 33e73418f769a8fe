#include "lowtide/buffers.h"

#include <algorithm>
#include <utility>

#include "base/words.h"
#include "io/buffer_formats.h"
#include "io/formats.h"

namespace lowtide {
namespace {

constexpr std::size_t kMostBuffers = kMaxIds / 2;  // so that steps can name every begin and end
constexpr Bytes kLastAddress{std::uint64_t{1} << 62};

Result<std::vector<BufferRow>> read_buffers(Text text, const std::string& subject) {
  Result<std::vector<BufferRow>> rows =
      is_buffers_json(text.view()) ? read_buffers_json(std::move(text)) : read_buffers_csv(text.view());
  if (!rows.ok()) return about(subject, rows.error());
  return rows;
}

void write_buffers(std::span<const BufferRow> rows, BufferFormat format, const Drain& drain) {
  format == BufferFormat::json ? write_buffers_json(rows, drain) : write_buffers_csv(rows, drain);
}

BufferFormat format_of(std::filesystem::path path) {
  if (path.extension() == ".zst") path.replace_extension();
  return path.extension() == ".json" ? BufferFormat::json : BufferFormat::csv;
}

}  // namespace

std::string Place::text() const {
  return kind == line ? words("line ", number) : words("buffers[", number, "]");
}

Error wrong_buffer(Place place, std::string_view what) {
  return {ErrorCode::malformed_file, words(place.text(), ": ", what)};
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

Status BufferTable::add(BufferRow row, Place place) {
  if (rows_.size() == kMostBuffers) {
    return Error{ErrorCode::too_many_objects, words("more than ", kMostBuffers, " buffers")};
  }
  if (row.id.empty()) return wrong_buffer(place, "its id is empty");
  const auto wrong = [&](const auto&... why) { return wrong_buffer(place, words("buffer ", shown(row.id), why...)); };
  if (row.id.find_first_of(",\n") != row.id.npos || trimmed(row.id) != row.id) {
    return wrong(": an id has no comma and no line end, and no blank at its ends");
  }
  if (row.upper < row.lower) return wrong(" lives from ", row.lower, " to ", row.upper, ", which is earlier");
  if (row.alignment == Bytes(0)) return wrong(" has an alignment of 0");
  if (row.offset && row.offset->count() % row.alignment.count() != 0) {
    return wrong(" lies at offset ", *row.offset, ", which is no multiple of its alignment ", row.alignment);
  }
  if (row.offset.value_or(Bytes(0)) + row.size > kLastAddress || row.alignment > kLastAddress) {
    return Error{ErrorCode::size_overflow,
                 words(place.text(), ": buffer ", shown(row.id), " does not fit: addresses end at 2^62")};
  }
  const std::uint32_t number = index_.intern(row.id, ids_);
  if (number != rows_.size()) {
    return wrong_buffer(place, words("there is a buffer ", shown(row.id), " already, in ", places_[number].text()));
  }
  rows_.push_back(std::move(row));
  places_.push_back(place);
  return Done{};
}

Result<std::vector<BufferRow>> parse_buffers(std::string_view text) {
  return read_buffers(Text::copy_of(text), "the text");
}

Result<std::vector<BufferRow>> load_buffers(const std::filesystem::path& path) {
  Result<Text> text = read_text(path);
  if (!text.ok()) return text.error();
  return read_buffers(*std::move(text), path.string());
}

std::string buffers_text(std::span<const BufferRow> rows, BufferFormat format) {
  std::string text;
  write_buffers(rows, format, [&](std::string_view piece) { text += piece; });
  return text;
}

Status save_buffers(std::span<const BufferRow> rows, const std::filesystem::path& path) {
  return write_text(path, [&](const Drain& drain) { write_buffers(rows, format_of(path), drain); });
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
