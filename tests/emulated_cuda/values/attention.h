// Fused attention by its plain formula, on CPU tensors: the operators that only CUDA has.
//
//     P = softmax(scale Q K^T + bias),  out = drop(P) V
//
// Arguments and results are those of each operator's schema; results that nothing reads are left undefined. Dropout is
// drawn again in the backward pass, from the state that the forward pass leaves in its results.
#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <string>

#include "draws.h"

namespace emulated_cuda {

using Formula = torch::jit::Stack (*)(const torch::jit::Stack& arguments, std::optional<DrawState> state);

// Null for operators that have none.
Formula formula_of(const std::string& name);

}  // namespace emulated_cuda
