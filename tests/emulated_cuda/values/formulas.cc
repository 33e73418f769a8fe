#include "formulas.h"

#include <ATen/ops/log_sigmoid_backward.h>
#include <ATen/ops/log_sigmoid_forward.h>

#include <string>
#include <unordered_map>

#include "attention.h"
#include "recurrent.h"

namespace emulated_cuda {
namespace {

using torch::jit::Stack;

// (out', self, buffer) -> (self'). The CPU's kernel reads a buffer of the forward pass that CUDA leaves empty.
Stack log_sigmoid_backward(const Stack& s, std::optional<DrawState>) {
  const at::Tensor self = s[1].toTensor(), buffer = std::get<1>(at::log_sigmoid_forward(self));
  return {at::log_sigmoid_backward(s[0].toTensor(), self, buffer)};
}

}  // namespace

Formula formula_of(const c10::OperatorHandle& op) {
  static const std::unordered_map<std::string, Formula> formulas = {
      {"aten::_scaled_dot_product_efficient_attention", &efficient_forward},
      {"aten::_scaled_dot_product_efficient_attention_backward", &efficient_backward},
      {"aten::_scaled_dot_product_flash_attention", &flash_forward},
      {"aten::_scaled_dot_product_flash_attention_backward", &flash_backward},
      {"aten::_thnn_fused_lstm_cell", &lstm_forward},
      {"aten::_thnn_fused_lstm_cell_backward_impl", &lstm_backward},
      {"aten::_thnn_fused_gru_cell", &gru_forward},
      {"aten::_thnn_fused_gru_cell_backward", &gru_backward},
      {"aten::log_sigmoid_backward", &log_sigmoid_backward},
  };
  const auto found = formulas.find(c10::toString(op.operator_name()));
  return found == formulas.end() ? nullptr : found->second;
}

}  // namespace emulated_cuda
