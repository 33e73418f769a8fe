// json_rows.h: the objects of an array, one after another, each put where its fields belong.
//
//   std::uint64_t size = 0;
//   bool resident = false;
//   JsonRows rows(section, JsonShape::list, {{"size", &size, JsonField::required}, {"resident", &resident}});
//   while (true) {
//     size = 0, resident = false;              // what a row does not say keeps its default
//     Result<bool> more = rows.next();         // E603 names the place: "buffers[17].size: expected ..."
//     if (!more.ok() || !*more) break;
//     use(size, resident);
//   }
//
// The only place that knows simdjson.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/json_sections.h"
#include "lowtide/status.h"
#include "lowtide/units.h"

namespace lowtide {

// Where a field goes, and with that what it must be: a whole number of 64 or of 32 bits, true or false, a text (until
// the next call of next()), or a list of numbers or ids.
struct JsonField {
  using Target = std::variant<std::uint64_t*, std::optional<std::uint64_t>*, std::uint32_t*, bool*, std::string_view*,
                              std::vector<std::int64_t>*, std::vector<std::uint64_t>*, std::vector<ValueId>*,
                              std::vector<BufferId>*, std::vector<BlockId>*>;
  enum Need : bool { optional, required };

  std::string_view name;
  Target target;
  Need need = optional;
};

// Many rows, or a single one that stands by itself.
enum class JsonShape : bool { list, object };

class JsonRows {
 public:
  // `section` may be null: no rows.
  JsonRows(const JsonSection* section, JsonShape shape, std::vector<JsonField> fields);
  ~JsonRows();
  JsonRows(const JsonRows&) = delete;
  JsonRows& operator=(const JsonRows&) = delete;

  // Reads the next row. False: there was none left.
  Result<bool> next();

  std::size_t index() const;  // of the row that was read last
  std::size_t size() const;   // how many rows there are

 private:
  class Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace lowtide
