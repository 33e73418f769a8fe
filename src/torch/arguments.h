// arguments.h: a call's arguments, described once and built into a dispatcher stack.
//
// An argument is a constant, a tensor of the program (by value index), a number that changes from step to step (by
// number index), or a list of these. Everything else about it follows from the operator's schema.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <pybind11/pybind11.h>

#include <vector>

namespace lowtide::torch_runtime {

struct Argument {
  enum class Kind { constant, value, number, list };
  Kind kind = Kind::constant;
  c10::IValue constant;
  int index = 0;                   // of the value or number
  std::vector<Argument> elements;  // of a list
  c10::TypePtr type;               // what the schema asks for, with Optional taken off
};

// Reads the front end's description: ("constant", object) | ("value", i) | ("number", i) | ("list", [..]) | ("default",
// None).
Argument read_argument(pybind11::handle description, const c10::Argument& schema);

// Converts a Python object to what the schema asks for.
c10::IValue read_constant(pybind11::handle object, const c10::TypePtr& type);

// The IValue that goes on the stack. `values` and `numbers` are the program's.
c10::IValue build(const Argument& argument, const std::vector<at::Tensor>& values,
                  const std::vector<c10::IValue>& numbers);

// Whether a number occurs anywhere in it, and which.
void collect_numbers(const Argument& argument, std::vector<int>* indices);
void collect_values(const Argument& argument, std::vector<int>* indices);

}  // namespace lowtide::torch_runtime
