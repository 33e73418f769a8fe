// Fused attention by its plain formula, on CPU tensors: the operators that only CUDA has.
//
//     P = softmax(scale Q K^T + bias),  out = drop(P) V
//
// Arguments and results are those of each operator's schema; results that nothing reads are left undefined. Dropout is
// drawn again in the backward pass, from the state that the forward pass leaves in its results.
#pragma once

#include <ATen/core/stack.h>

#include <optional>

#include "draws.h"

namespace emulated_cuda {

torch::jit::Stack efficient_forward(const torch::jit::Stack& arguments, std::optional<DrawState> state);
torch::jit::Stack efficient_backward(const torch::jit::Stack& arguments, std::optional<DrawState> state);
torch::jit::Stack flash_forward(const torch::jit::Stack& arguments, std::optional<DrawState> state);
torch::jit::Stack flash_backward(const torch::jit::Stack& arguments, std::optional<DrawState> state);

}  // namespace emulated_cuda
