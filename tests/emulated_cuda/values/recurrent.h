// Fused recurrent cells by their plain formulas, on CPU tensors: the operators that only CUDA has. Arguments and
// results are those of each operator's schema. The workspace keeps what the backward pass reads, as CUDA's kernels do.
#pragma once

#include <ATen/core/stack.h>

#include <optional>

#include "draws.h"

namespace emulated_cuda {

torch::jit::Stack lstm_forward(const torch::jit::Stack& arguments, std::optional<DrawState> state);
torch::jit::Stack lstm_backward(const torch::jit::Stack& arguments, std::optional<DrawState> state);
torch::jit::Stack gru_forward(const torch::jit::Stack& arguments, std::optional<DrawState> state);
torch::jit::Stack gru_backward(const torch::jit::Stack& arguments, std::optional<DrawState> state);

}  // namespace emulated_cuda
