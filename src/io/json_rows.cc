#include "io/json_rows.h"

#include <simdjson.h>

#include <limits>
#include <utility>

#include "base/words.h"

namespace lowtide {

namespace ondemand = simdjson::ondemand;

static_assert(kTextPadding >= simdjson::SIMDJSON_PADDING);

class JsonRows::Parser {
 public:
  Parser(const JsonSection* section, JsonShape shape, std::vector<JsonField> fields)
      : shape_(shape), fields_(std::move(fields)) {
    if (section == nullptr) return;
    section_ = *section;
    ends_ = section_.cuts;
    if (shape_ == JsonShape::list) {
      ends_.push_back(section_.end - 1);
      batch_ = section_.begin;
    } else {
      ends_.push_back(section_.end);
      batch_ = section_.begin - 1;
    }
  }

  Result<bool> next() {
    if (batches_ == 0 && !ends_.empty() && section_.is_array() != (shape_ == JsonShape::list)) {
      return malformed(section_.name, ": expected ", shape_ == JsonShape::list ? "a list" : "an object", ", but found ",
                       shown(section_.text()));
    }
    while (true) {
      if (in_batch_) {
        if (row_ != rows_end_) break;
        in_batch_ = false;
        if (rows_in_batch_ == 0 && (batches_ > 1 || section_.rows > 0))
          return malformed(here(), ": expected an object");
      }
      if (batches_ == ends_.size()) {
        if (index_ != section_.rows) return malformed(section_.name, ": not a list of objects");
        return false;
      }
      if (Status status = open_batch(); !status.ok()) return status.error();
    }
    if (Status status = read_row(); !status.ok()) return status.error();
    ++index_;
    ++rows_in_batch_;
    ++row_;
    return true;
  }

  std::size_t index() const { return index_ - 1; }
  std::size_t size() const { return section_.rows; }

 private:
  template <typename... Parts>
  static Error malformed(const Parts&... parts) {
    return {ErrorCode::malformed_file, words(parts...)};
  }

  std::string here() const {
    return shape_ == JsonShape::list ? words(section_.name, "[", index_, "]") : std::string(section_.name);
  }

  // The bytes around a batch are commas, or the array's own brackets: with brackets of its own it is an array.
  Status open_batch() {
    char* const end = ends_[batches_++];
    *batch_ = '[';
    *end = ']';
    const auto size = static_cast<std::size_t>(end - batch_ + 1);
    simdjson::error_code error = parser_.iterate(batch_, size, size + kTextPadding).get(document_);
    if (!error) error = document_.get_array().get(array_);
    if (!error) error = array_.begin().get(row_);
    if (!error) error = array_.end().get(rows_end_);
    batch_ = end;
    if (error) return malformed(here(), ": ", simdjson::error_message(error));
    in_batch_ = true;
    rows_in_batch_ = 0;
    return Done{};
  }

  Status read_row() {
    ondemand::object object;
    simdjson::simdjson_result<ondemand::value> element = *row_;
    ondemand::value value;
    if (const simdjson::error_code error = element.get(value)) {
      return malformed(here(), ": ", simdjson::error_message(error));
    }
    if (value.get_object().get(object)) return wrong(here(), "an object", value);
    std::uint32_t seen = 0;
    for (simdjson::simdjson_result<ondemand::field> found : object) {
      ondemand::field field;
      if (const simdjson::error_code error = std::move(found).get(field)) {
        return malformed(here(), ": ", simdjson::error_message(error));
      }
      std::string_view name;
      if (field.unescaped_key().get(name)) return malformed(here(), ": a field's name is no JSON string");
      std::size_t i = 0;
      while (i < fields_.size() && fields_[i].name != name) ++i;
      if (i == fields_.size()) return malformed(here(), ": there is no field ", shown(name), "; there are ", names());
      if (seen & (1U << i)) return malformed(here(), ": field '", name, "' is given twice");
      seen |= 1U << i;
      const Status status =
          std::visit([&](auto* target) { return read(fields_[i].name, field.value(), *target); }, fields_[i].target);
      if (!status.ok()) return status;
    }
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (fields_[i].need == JsonField::required && !(seen & (1U << i))) {
        return malformed(here(), ": field '", fields_[i].name, "' is missing");
      }
    }
    return Done{};
  }

  static constexpr std::string_view kId = "a whole number from 0 to 4294967295";
  static constexpr std::string_view kAmount = "a whole number from 0 to 18446744073709551615";

  Status read(std::string_view name, ondemand::value& value, std::uint64_t& target) {
    return value.get_uint64().get(target) ? wrong(place(name), kAmount, value) : Status(Done{});
  }
  Status read(std::string_view name, ondemand::value& value, std::optional<std::uint64_t>& target) {
    return read(name, value, target.emplace());
  }
  Status read(std::string_view name, ondemand::value& value, std::uint32_t& target) {
    return read_id(value, target) ? Status(Done{}) : wrong(place(name), kId, value);
  }
  Status read(std::string_view name, ondemand::value& value, bool& target) {
    return value.get_bool().get(target) ? wrong(place(name), "true or false", value) : Status(Done{});
  }
  Status read(std::string_view name, ondemand::value& value, std::string_view& target) {
    return value.get_string().get(target) ? wrong(place(name), "a text", value) : Status(Done{});
  }
  template <typename Tag>
  Status read(std::string_view name, ondemand::value& value, std::vector<Id<Tag>>& target) {
    return read_list(name, value, kId, [&](ondemand::value& item) {
      std::uint32_t id = 0;
      if (!read_id(item, id)) return false;
      target.emplace_back(id);
      return true;
    });
  }
  Status read(std::string_view name, ondemand::value& value, std::vector<std::int64_t>& target) {
    return read_list(name, value, "a whole number of 64 bits", [&](ondemand::value& item) {
      std::int64_t number = 0;
      if (item.get_int64().get(number)) return false;
      target.push_back(number);
      return true;
    });
  }

  Status read(std::string_view name, ondemand::value& value, std::vector<std::uint64_t>& target) {
    return read_list(name, value, kAmount,
                     [&](ondemand::value& item) { return !item.get_uint64().get(target.emplace_back()); });
  }

  static bool read_id(ondemand::value& value, std::uint32_t& target) {
    std::uint64_t number = 0;
    if (value.get_uint64().get(number) || number > std::numeric_limits<std::uint32_t>::max()) return false;
    target = static_cast<std::uint32_t>(number);
    return true;
  }

  template <typename Take>
  Status read_list(std::string_view name, ondemand::value& value, std::string_view items, Take take) {
    ondemand::array list;
    if (value.get_array().get(list)) return wrong(place(name), "a list", value);
    std::size_t count = 0;
    for (simdjson::simdjson_result<ondemand::value> found : list) {
      ondemand::value item;
      const auto where = [&] { return words(place(name), "[", count, "]"); };
      if (const simdjson::error_code error = found.get(item)) {
        return malformed(where(), ": ", simdjson::error_message(error));
      }
      if (!take(item)) return wrong(where(), items, item);
      ++count;
    }
    return Done{};
  }

  std::string place(std::string_view field) const { return words(here(), ".", field); }

  static Error wrong(const std::string& place, std::string_view wanted, ondemand::value& value) {
    std::string_view token = value.raw_json_token();
    while (!token.empty() &&
           (token.back() == ' ' || token.back() == '\n' || token.back() == '\r' || token.back() == '\t')) {
      token.remove_suffix(1);
    }
    return malformed(place, ": expected ", wanted, ", but found ", shown(token));
  }

  std::string names() const {
    std::string text;
    for (const JsonField& field : fields_) text += words(text.empty() ? "" : ", ", field.name);
    return text;
  }

  JsonShape shape_;
  std::vector<JsonField> fields_;
  JsonSection section_ = {};
  std::vector<char*> ends_;  // where each batch ends
  char* batch_ = nullptr;    // where the next begins
  std::size_t batches_ = 0;  // opened so far
  bool in_batch_ = false;
  std::size_t rows_in_batch_ = 0;
  std::size_t index_ = 0;  // rows read so far

  ondemand::parser parser_;
  ondemand::document document_;
  ondemand::array array_;
  ondemand::array_iterator row_;
  ondemand::array_iterator rows_end_;
};

JsonRows::JsonRows(const JsonSection* section, JsonShape shape, std::vector<JsonField> fields)
    : parser_(std::make_unique<Parser>(section, shape, std::move(fields))) {}
JsonRows::~JsonRows() = default;

Result<bool> JsonRows::next() {
  return parser_->next();
}
std::size_t JsonRows::index() const {
  return parser_->index();
}
std::size_t JsonRows::size() const {
  return parser_->size();
}

}  // namespace lowtide
