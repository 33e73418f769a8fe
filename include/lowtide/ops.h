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
  // Given None for these, it has the same results and asks for the same memory, if it has another operand of their
  // dtype.
  bool optional = false;
};

struct OpFacts {
  std::string_view name;  // as the schema has it, without overload: "aten::native_batch_norm"
  HiddenWrites hidden_writes;
  std::optional<std::uint32_t> runtime_sized_result = {};  // how large it is, only the real op knows
  bool sees_grad_mode = false;                             // it does other things while gradients are enabled
  bool leaves_results_unwritten = false;                   // in whole or in part: memory as it was found
  bool moves_no_bytes = false;                             // all of its results are memory as it was found
  bool reads_what_it_picks = false;                        // of its first argument, a table, and no more
  bool numbers_decide_shape = false;                       // another number gives a result of another size
  // Arguments in whose bytes the first result can be made, with the same bits, if both have the same form: each element
  // is written after the last read of it and of all that decides about it.
  std::span<const std::uint32_t> result_over = {};
};

// All rows.
std::span<const OpFacts> known_ops();

// The row of `name`, or nothing: then the schema is the whole truth.
std::optional<OpFacts> op_facts(std::string_view name);

}  // namespace lowtide
