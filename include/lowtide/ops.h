// ops.h: what is known about operators beyond what their schemas say.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lowtide {

// Arguments (by position in the schema) that an op writes although its schema does not say so.
struct HiddenWrites {
  std::optional<std::uint32_t> condition;  // only when this argument is true; always, if none
  std::span<const std::uint32_t> arguments;
};

struct OpFacts {
  std::string_view name;  // as the schema has it, without overload: "aten::native_batch_norm"
  HiddenWrites hidden_writes;
  bool opaque_operands =
      false;  // some operand's content is known only to the op's own library: never run it on scratch
};

// The row of `name`, or nothing: then the schema is the whole truth.
std::optional<OpFacts> op_facts(std::string_view name);

}  // namespace lowtide
