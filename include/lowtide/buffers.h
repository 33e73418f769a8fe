// buffers.h: buffers with sizes and lives as a CSV or JSON file, to be packed without a graph.
//
//   id,lower,upper,size,alignment,offset        b lives in [0, 40), takes 64 bytes, and must lie at offset 0;
//   a,0,20,64,,                                 a lives in [0, 20), takes 64 bytes, and may lie anywhere
//   b,0,40,64,64,0
//
// The first line names the columns, in any order; alignment and offset may be left out. As JSON:
//
//   {"buffers": [{"id": "a", "lower": 0, "upper": 20, "size": 64}, ...]}
//
// docs/formats.md is the schema. Reading and writing treat files as files.h does.
//
//   Result<std::vector<BufferRow>> rows = load_buffers("buffers.csv");
//   if (rows.ok()) Result<NamedLayout> best = lay_out(to_items(*rows));
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/layout.h"
#include "lowtide/status.h"
#include "lowtide/units.h"

namespace lowtide {

struct BufferRow {
  std::string id;       // no two rows have the same; no commas, line ends, or blanks around it
  std::uint64_t lower;  // alive in [lower, upper), in any measure of time
  std::uint64_t upper;
  Bytes size;
  Bytes alignment{1};
  std::optional<Bytes> offset = {};  // where it lies, if that is known
};

// As JSON if it begins with a brace. E601 if the first line does not name the columns or the object is something else,
// E603 for a row that is wrong, E107 for one beyond all addresses; each says which.
Result<std::vector<BufferRow>> parse_buffers(std::string_view text);
Result<std::vector<BufferRow>> load_buffers(const std::filesystem::path& path);

enum class BufferFormat : bool { csv, json };

// In the order of `rows`. CSV has the columns that every row has and offset; alignment too if any is not 1. JSON must
// be UTF-8: a byte of an id that is not becomes U+FFFD. A file is JSON if its name ends in .json or .json.zst.
std::string buffers_text(std::span<const BufferRow> rows, BufferFormat format = BufferFormat::csv);
Status save_buffers(std::span<const BufferRow> rows, const std::filesystem::path& path);

// The packing problem. Its steps are the moments at which a life begins or ends, counted from the first.
std::vector<LayoutItem> to_items(std::span<const BufferRow> rows);

}  // namespace lowtide
