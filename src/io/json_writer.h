// json_writer.h: JSON text, a row of a list on each line, handed on in pieces.
//
//   JsonWriter out(drain);
//   out.open("lowtide-graph", 1);
//   out.open_list("ops");
//   out.open_row();
//   out.field("name", "aten::mul");
//   out.field("reads", ids);
//   out.close_row();
//   out.close_list();
//   out.close();
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "lowtide/units.h"

namespace lowtide {

class JsonWriter {
 public:
  // `drain` is given the text piece by piece, in order.
  explicit JsonWriter(std::function<void(std::string_view)> drain) : drain_(std::move(drain)) {}

  void open();
  void open(std::string_view format, unsigned version);
  void close();

  void open_list(std::string_view name);
  void close_list();
  void open_object(std::string_view name);  // a row that stands by itself; close_row() closes it
  void open_row();
  void close_row();

  void field(std::string_view name, std::string_view text);
  void field(std::string_view name, bool flag);
  void field(std::string_view name, std::uint64_t number);
  template <typename Tag>
  void field(std::string_view name, Id<Tag> id) {
    field(name, std::uint64_t{id.value()});
  }
  template <typename Tag>
  void field(std::string_view name, Amount<Tag> amount) {
    field(name, amount.count());
  }
  // A list of numbers: each item as `number` sees it.
  template <typename Items, typename Number>
  void list(std::string_view name, const Items& items, Number number) {
    key(name);
    text_ += '[';
    bool first = true;
    for (const auto& item : items) {
      if (!std::exchange(first, false)) text_ += ',';
      append_number(std::invoke(number, item));
    }
    text_ += ']';
  }

 private:
  void open_section(std::string_view name, char bracket);
  void key(std::string_view name);
  void append_number(std::uint64_t number);
  void append_number(std::int64_t number);
  void append_number(std::uint32_t number) { append_number(std::uint64_t{number}); }

  std::function<void(std::string_view)> drain_;
  std::string text_;
  bool first_section_ = true;
  bool first_row_ = true;
  bool first_field_ = true;
};

}  // namespace lowtide
