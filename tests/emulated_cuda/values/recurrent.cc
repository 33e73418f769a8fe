#include "recurrent.h"

#include <ATen/ATen.h>

#include <vector>

namespace emulated_cuda {
namespace {

using torch::jit::Stack;

at::Tensor or_zero(const c10::IValue& value) {
  const bool is_there = value.isTensor() && value.toTensor().defined();
  return is_there ? value.toTensor() : at::zeros({}, at::kFloat);
}
at::Tensor sigmoid_slope(const at::Tensor& y) {
  return (1 - y) * y;
}
at::Tensor tanh_slope(const at::Tensor& y) {
  return 1 - y * y;
}
at::Tensor bias_of(const at::Tensor& gates, bool has_bias) {
  return has_bias ? gates.sum(0) : at::Tensor();
}

}  // namespace

// (from input, from hidden, c, input bias?, hidden bias?) -> (h, c, workspace)
Stack lstm_forward(const Stack& s, std::optional<DrawState>) {
  const at::Tensor gates = s[0].toTensor() + s[1].toTensor() + or_zero(s[3]) + or_zero(s[4]);
  const std::vector<at::Tensor> g = gates.chunk(4, 1);
  const at::Tensor in = g[0].sigmoid(), forget = g[1].sigmoid(), cell = g[2].tanh(), out = g[3].sigmoid();
  const at::Tensor c = forget * s[2].toTensor() + in * cell;
  return {out * c.tanh(), c, at::cat({in, forget, cell, out}, 1)};
}
// (h'?, c'?, c before, c, workspace, has bias) -> (gates', c before', bias')
Stack lstm_backward(const Stack& s, std::optional<DrawState>) {
  const std::vector<at::Tensor> g = s[4].toTensor().chunk(4, 1);
  const at::Tensor &in = g[0], &forget = g[1], &cell = g[2], &out = g[3], h = or_zero(s[0]), t = s[3].toTensor().tanh();
  const at::Tensor c = h * out * tanh_slope(t) + or_zero(s[1]);
  const at::Tensor gates = at::cat({c * cell * sigmoid_slope(in), c * s[2].toTensor() * sigmoid_slope(forget),
                                    c * in * tanh_slope(cell), h * t * sigmoid_slope(out)},
                                   1);
  return {gates, c * forget, bias_of(gates, s[5].toBool())};
}

// (from input, from hidden, h, input bias?, hidden bias?) -> (h, workspace)
Stack gru_forward(const Stack& s, std::optional<DrawState>) {
  const std::vector<at::Tensor> i = (s[0].toTensor() + or_zero(s[3])).chunk(3, 1);
  const std::vector<at::Tensor> h = (s[1].toTensor() + or_zero(s[4])).chunk(3, 1);
  const at::Tensor before = s[2].toTensor(), reset = (i[0] + h[0]).sigmoid(), keep = (i[1] + h[1]).sigmoid();
  const at::Tensor made = (i[2] + reset * h[2]).tanh();
  return {made + keep * (before - made), at::cat({reset, keep, made, before, h[2]}, 1)};
}
// (h', workspace, has bias) -> (from input', from hidden', h before', input bias', hidden bias')
Stack gru_backward(const Stack& s, std::optional<DrawState>) {
  const std::vector<at::Tensor> w = s[1].toTensor().chunk(5, 1);
  const at::Tensor &reset = w[0], &keep = w[1], &made = w[2], &before = w[3], &hidden = w[4], h = s[0].toTensor();
  const at::Tensor from_made = h * (1 - keep) * tanh_slope(made);
  const at::Tensor from_keep = h * (before - made) * sigmoid_slope(keep);
  const at::Tensor from_reset = from_made * hidden * sigmoid_slope(reset);
  const at::Tensor input_gates = at::cat({from_reset, from_keep, from_made}, 1);
  const at::Tensor hidden_gates = at::cat({from_reset, from_keep, from_made * reset}, 1);
  const bool has_bias = s[2].toBool();
  return {input_gates, hidden_gates, h * keep, bias_of(input_gates, has_bias), bias_of(hidden_gates, has_bias)};
}

}  // namespace emulated_cuda
