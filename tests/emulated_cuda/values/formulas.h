// Operators whose values are not those of the CPU's kernel of the same name.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

#include "draws.h"

namespace emulated_cuda {

using Formula = torch::jit::Stack (*)(const torch::jit::Stack& arguments, std::optional<DrawState> state);

// Null for an operator that needs none.
Formula formula_of(const c10::OperatorHandle& op);

}  // namespace emulated_cuda
