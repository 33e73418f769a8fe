// ops.h: what is known about operators beyond what their schemas say.
//
// How an op may run in parts (axis.h) is said in a notation like that of sums over indices. A letter is a dimension of
// the operands before the arrow and of the results behind it, each letter an axis; operands are the tensors of the
// schema in its order, lists among them.
//
//   mm                  mk,kn->mn                   by m, by n; by k the parts of the result are summed
//   embedding           _e,...->...e                _ is not cut, ... are any number of dimensions, each an axis
//   native_batch_norm   _c*,c,c,c,c->_c*,c,c        * are any number that are not cut
//   gelu_backward       ...                         all operands and results are alike
//
// Dimensions of size 1, and those that an operand does not have on the left, are broadcast: such an operand is whole. A
// result without the letter of an axis is the sum of what the parts make. Words behind semicolons name arguments:
//
//   whole dim              these dimensions of ... are not cut
//   last shape             nor as many of the last ones as this list is long
//   pads pad               nor those that are padded
//   sums dim keepdim       these are summed away (all, if the argument is not there), or stay with size 1
//   drops dim keepdim      the same, where parts cannot be summed
//   inserts dim            results have one more dimension, there
//   once beta              of a sum, only the first part has this; the others 0 or None
//   sizes size=...         arguments that are sizes of dimensions, cut as these are
//   blocks g               dimensions g may have different sizes, each in as many blocks
//   strict                 dimensions of size 1 are not broadcast
//   dense mean rstd        where parts of these (of all, if none is named) have no gaps in memory: the kernel does not
//                          look at their strides
//
// A line may begin with the arguments that it is for, "reduction=2: n_,n,_->,"; lines with | between them all hold.
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
  std::string_view axes = {};  // how it may run in parts; empty: it cannot
};

// All rows.
std::span<const OpFacts> known_ops();

// The row of `name`, or nothing: then the schema is the whole truth.
std::optional<OpFacts> op_facts(std::string_view name);

}  // namespace lowtide
