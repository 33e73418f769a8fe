#include "attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace emulated_cuda {
namespace {

using torch::jit::Stack;

struct Attention {
  at::Tensor query, key, value, bias;
  double dropout = 0;
  bool is_causal = false;
  std::optional<double> scale;

  double factor() const { return scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1)))); }

  at::Tensor scores() const {
    at::Tensor made = at::matmul(query.to(at::kFloat), key.to(at::kFloat).transpose(-2, -1)).mul_(factor());
    if (bias.defined()) made = made + bias;
    if (is_causal) {
      const at::Tensor seen = at::ones({made.size(-2), made.size(-1)}, at::kBool).tril();
      made.masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
    }
    return made;
  }
  // What each probability is multiplied by.
  at::Tensor kept(at::IntArrayRef shape, DrawState state) const {
    if (dropout == 0) return at::ones({}, at::kFloat);
    return at::empty(shape, at::kFloat).bernoulli_(1 - dropout, generator_for(state)).div_(1 - dropout);
  }
};

struct Gradients {
  at::Tensor query, key, value, bias;
};
Gradients backward(const Attention& a, const at::Tensor& out_gradient, DrawState state) {
  const at::Tensor p = at::softmax(a.scores(), -1), kept = a.kept(p.sizes(), state), out = out_gradient.to(at::kFloat);
  const at::Tensor p_gradient = at::matmul(out, a.value.to(at::kFloat).transpose(-2, -1)) * kept;
  const at::Tensor scores = p * (p_gradient - (p_gradient * p).sum(-1, true));
  Gradients made;
  made.query = at::matmul(scores, a.key.to(at::kFloat)) * a.factor();
  made.key = at::matmul(scores.transpose(-2, -1), a.query.to(at::kFloat)) * a.factor();
  made.value = at::matmul((p * kept).transpose(-2, -1), out);
  if (a.bias.defined()) made.bias = at::sum_to(scores, a.bias.sizes());
  return made;
}

struct Forward {
  at::Tensor out, logsumexp;
};
Forward forward(const Attention& a, DrawState state) {
  const at::Tensor scores = a.scores(), p = at::softmax(scores, -1);
  return {at::matmul(p * a.kept(p.sizes(), state), a.value.to(at::kFloat)), at::logsumexp(scores, {-1})};
}

at::Tensor tensor_or_none(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}
std::uint64_t whole(const at::Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.view(at::kLong).item<int64_t>());
}

}  // namespace

// (query, key, value, bias?, with_logsumexp, dropout, is_causal, scale?) -> (out, logsumexp, seed, offset)
Stack efficient_forward(const Stack& s, std::optional<DrawState> state) {
  const Attention a{s[0].toTensor(), s[1].toTensor(), s[2].toTensor(),          tensor_or_none(s[3]),
                    s[5].toDouble(), s[6].toBool(),   s[7].toOptional<double>()};
  Forward made = forward(a, *state);
  const int64_t rows = made.logsumexp.size(-1);  // in CUDA a multiple of 32, or none if nobody asks for them
  made.logsumexp = s[4].toBool() ? at::constant_pad_nd(made.logsumexp, {0, (rows + 31) / 32 * 32 - rows}, INFINITY)
                                 : made.logsumexp.narrow(-1, 0, 0);
  return {made.out, made.logsumexp, at::Tensor(), at::Tensor()};  // CUDA's own code fills in seed and offset
}
// (out', query, key, value, bias?, out, logsumexp, seed, offset, dropout, mask, is_causal, scale?) -> gradients
Stack efficient_backward(const Stack& s, std::optional<DrawState>) {
  const Attention a{s[1].toTensor(), s[2].toTensor(), s[3].toTensor(),           tensor_or_none(s[4]),
                    s[9].toDouble(), s[11].toBool(),  s[12].toOptional<double>()};
  const DrawState state = a.dropout == 0 ? DrawState{} : DrawState{whole(s[7].toTensor()), whole(s[8].toTensor())};
  const Gradients made = backward(a, s[0].toTensor(), state);
  return {made.query, made.key, made.value, made.bias};
}

// (query, key, value, dropout, is_causal, debug, scale?) -> (out, logsumexp, _, _, _, _, state, _, _)
Stack flash_forward(const Stack& s, std::optional<DrawState> state) {
  const Attention a{s[0].toTensor(), s[1].toTensor(), s[2].toTensor(),          {},
                    s[3].toDouble(), s[4].toBool(),   s[6].toOptional<double>()};
  const Forward made = forward(a, *state);
  const at::Tensor left = at::empty({2}, at::kLong);
  left[0].fill_(static_cast<int64_t>(state->seed));
  left[1].fill_(static_cast<int64_t>(state->offset));
  const at::Tensor none;
  return {made.out, made.logsumexp, none, none, none, none, left.view(at::kUInt64), none, none};
}
// (out', query, key, value, out, logsumexp, _, _, _, _, dropout, is_causal, state, _, scale?) -> gradients
Stack flash_backward(const Stack& s, std::optional<DrawState>) {
  const Attention a{s[1].toTensor(),  s[2].toTensor(), s[3].toTensor(),           {},
                    s[10].toDouble(), s[11].toBool(),  s[14].toOptional<double>()};
  const at::Tensor left = s[12].toTensor();
  const DrawState state = a.dropout == 0 ? DrawState{} : DrawState{whole(left[0]), whole(left[1])};
  const Gradients made = backward(a, s[0].toTensor(), state);
  return {made.query, made.key, made.value};
}

}  // namespace emulated_cuda
