#include "lowtide/ops.h"

#include <algorithm>
#include <array>
#include <span>

namespace lowtide {
namespace {

constexpr std::uint32_t kRunningStatistics[] = {3, 4};

constexpr std::uint32_t kFirst[] = {0};
constexpr std::uint32_t kFirstTwo[] = {0, 1};
constexpr std::uint32_t kFirstAndSixth[] = {0, 5};
constexpr std::uint32_t kFirstThree[] = {0, 1, 2};
constexpr std::uint32_t kSecond[] = {1};
constexpr std::uint32_t kSecondAndThird[] = {1, 2};

constexpr OpFacts over(std::string_view name, std::span<const std::uint32_t> arguments) {
  return {.name = name, .hidden_writes = {}, .result_over = arguments};
}

constexpr OpFacts cut(std::string_view axes, OpFacts row) {
  row.axes = axes;
  return row;
}

constexpr OpFacts cut(std::string_view axes, std::string_view name) {
  return {.name = name, .hidden_writes = {}, .axes = axes};
}

// Element by element.
constexpr OpFacts pointwise(std::string_view name, std::span<const std::uint32_t> over_arguments = {}) {
  return cut("...", over(name, over_arguments));
}

constexpr OpFacts unwritten(std::string_view name) {
  return {.name = name, .hidden_writes = {}, .leaves_results_unwritten = true, .moves_no_bytes = true};
}

constexpr OpFacts picks(std::string_view name) {
  return {.name = name, .hidden_writes = {}, .reads_what_it_picks = true};
}

constexpr OpFacts sized_by_numbers(std::string_view name) {
  return {.name = name, .hidden_writes = {}, .numbers_decide_shape = true};
}

// One row for each op of which more is known than its schema says.
constexpr std::array kTable = {
    // In training it updates running_mean and running_var, which its schema shows as plain inputs.
    OpFacts{.name = "aten::native_batch_norm",
            .hidden_writes = {.condition = 5, .arguments = kRunningStatistics, .optional = true},
            .result_over = kFirst,
            .axes = "_c*,c,c,c,c->_c*,c,c | training=False: nc*,c,c,c,c->nc*,*,*"},
    // So do these, which are called as a whole in inference mode.
    OpFacts{.name = "aten::batch_norm",
            .hidden_writes = {.condition = 5, .arguments = kRunningStatistics, .optional = true}},
    OpFacts{.name = "aten::instance_norm",
            .hidden_writes = {.condition = 5, .arguments = kRunningStatistics, .optional = true}},
    OpFacts{.name = "aten::_batch_norm_impl_index",
            .hidden_writes = {.condition = 5, .arguments = kRunningStatistics, .optional = true}},
    // While gradients are enabled it hands its backward a workspace in oneDNN's own format.
    // It does not write all of that workspace.
    OpFacts{.name = "aten::mkldnn_rnn_layer",
            .hidden_writes = {},
            .runtime_sized_result = 3,
            .sees_grad_mode = true,
            .leaves_results_unwritten = true},
    unwritten("aten::empty"),
    unwritten("aten::empty_like"),
    unwritten("aten::empty_permuted"),
    unwritten("aten::empty_strided"),
    unwritten("aten::new_empty"),
    unwritten("aten::new_empty_strided"),
    picks("aten::embedding"),
    picks("aten::gather"),
    picks("aten::index"),
    picks("aten::index_select"),
    sized_by_numbers("aten::arange"),
    sized_by_numbers("aten::range"),
    // Element by element.
    pointwise("aten::abs", kFirst),
    pointwise("aten::acos", kFirst),
    pointwise("aten::add", kFirstTwo),
    pointwise("aten::addcdiv", kFirstThree),
    pointwise("aten::addcmul", kFirstThree),
    pointwise("aten::asin", kFirst),
    pointwise("aten::atan", kFirst),
    pointwise("aten::atan2", kFirstTwo),
    pointwise("aten::ceil", kFirst),
    pointwise("aten::clamp", kFirst),
    pointwise("aten::clamp_max", kFirst),
    pointwise("aten::clamp_min", kFirst),
    pointwise("aten::clone", kFirst),
    pointwise("aten::cos", kFirst),
    pointwise("aten::cosh", kFirst),
    pointwise("aten::div", kFirstTwo),
    pointwise("aten::elu", kFirst),
    pointwise("aten::elu_backward", kFirstAndSixth),
    pointwise("aten::erf", kFirst),
    pointwise("aten::erfc", kFirst),
    pointwise("aten::exp", kFirst),
    pointwise("aten::exp2", kFirst),
    pointwise("aten::expm1", kFirst),
    pointwise("aten::floor", kFirst),
    pointwise("aten::frac", kFirst),
    pointwise("aten::gelu", kFirst),
    pointwise("aten::gelu_backward", kFirstTwo),
    pointwise("aten::hardsigmoid", kFirst),
    pointwise("aten::hardsigmoid_backward", kFirstTwo),
    pointwise("aten::hardswish", kFirst),
    pointwise("aten::hardswish_backward", kFirstTwo),
    pointwise("aten::hardtanh", kFirst),
    pointwise("aten::hardtanh_backward", kFirstTwo),
    pointwise("aten::leaky_relu", kFirst),
    pointwise("aten::leaky_relu_backward", kFirstTwo),
    pointwise("aten::lerp", kFirstTwo),
    pointwise("aten::log", kFirst),
    pointwise("aten::log10", kFirst),
    pointwise("aten::log1p", kFirst),
    pointwise("aten::log2", kFirst),
    pointwise("aten::logical_not", kFirst),
    pointwise("aten::logit", kFirst),
    pointwise("aten::masked_fill", kFirst),
    pointwise("aten::maximum", kFirstTwo),
    pointwise("aten::minimum", kFirstTwo),
    pointwise("aten::mish", kFirst),
    pointwise("aten::mish_backward", kFirstTwo),
    pointwise("aten::mul", kFirstTwo),
    pointwise("aten::neg", kFirst),
    pointwise("aten::pow", kFirst),
    pointwise("aten::reciprocal", kFirst),
    pointwise("aten::relu", kFirst),
    pointwise("aten::round", kFirst),
    pointwise("aten::rsqrt", kFirst),
    pointwise("aten::rsub", kFirstTwo),
    pointwise("aten::sgn", kFirst),
    pointwise("aten::sigmoid", kFirst),
    pointwise("aten::sigmoid_backward", kFirstTwo),
    pointwise("aten::sign", kFirst),
    pointwise("aten::silu", kFirst),
    pointwise("aten::silu_backward", kFirstTwo),
    pointwise("aten::sin", kFirst),
    pointwise("aten::sinh", kFirst),
    pointwise("aten::softplus", kFirst),
    pointwise("aten::softplus_backward", kFirstTwo),
    pointwise("aten::sqrt", kFirst),
    pointwise("aten::square", kFirst),
    pointwise("aten::sub", kFirstTwo),
    pointwise("aten::tan", kFirst),
    pointwise("aten::tanh", kFirst),
    pointwise("aten::tanh_backward", kFirstTwo),
    pointwise("aten::threshold", kFirst),
    pointwise("aten::threshold_backward", kFirstTwo),
    pointwise("aten::trunc", kFirst),
    pointwise("aten::where", kSecondAndThird),
    pointwise("aten::_to_copy"),
    pointwise("aten::copy"),
    pointwise("aten::fill"),
    pointwise("aten::full_like"),
    pointwise("aten::native_dropout_backward"),
    pointwise("aten::ones_like"),
    pointwise("aten::zero"),
    pointwise("aten::zeros_like"),
    // Row by row or channel by channel: what is needed of a row is read before it is written.
    cut("...->...; whole dim", over("aten::_log_softmax", kFirst)),
    cut("...,...->...; whole dim", over("aten::_log_softmax_backward_data", kFirstTwo)),
    cut("...->...; whole dim", over("aten::_softmax", kFirst)),
    cut("...,...->...; whole dim", over("aten::_softmax_backward_data", kFirstTwo)),
    // Not over the gradient: where the two lie in memory differently, it is read once more after the first write.
    cut("_c*,_c*,c,c,c,c,c->_c*,c,c | train=False: nc*,nc*,c,c,c,c,c->nc*,c,c",
        over("aten::native_batch_norm_backward", kSecond)),
    // By groups the parts would not be contiguous, which they must be.
    cut("n*,*,*->n*,n*,n*; sizes N=n", over("aten::native_group_norm", kFirst)),
    cut("n*,n*,n*,n*,*->n*,*,*; sizes N=n", over("aten::native_group_norm_backward", kFirstTwo)),
    cut("...,*,*->...,...,...; last normalized_shape", over("aten::native_layer_norm", kFirst)),
    cut("...,...,...,...,*,*->...,*,*; last normalized_shape", over("aten::native_layer_norm_backward", kFirstTwo)),
    cut("...->...; whole dim", "aten::_safe_softmax"),
    // Products of matrices.
    cut("mn,mk,kn->mn; once beta", "aten::addmm"),
    cut("m,mk,k->m; once beta", "aten::addmv"),
    cut("mn,bmk,bkn->mn; once beta", "aten::addbmm"),
    cut("mn,m,n->mn", "aten::addr"),
    cut("bmn,bmk,bkn->bmn; once beta", "aten::baddbmm"),
    cut("bmk,bkn->bmn", "aten::bmm"),
    cut("k,k->", "aten::dot"),
    cut("...k,nk,n->...n; once bias", "aten::linear"),
    cut("mk,kn->mn", "aten::mm"),
    cut("mk,k->m", "aten::mv"),
    // Parts along input channels are summed, with one bias; along groups, they are convolutions of fewer.
    cut("ng*,g*,g->ng*; sizes groups=g; blocks g"
        " | groups=1 transposed=False: _c*,oc*,o->_o*; once bias"
        " | groups=1 transposed=True: _c*,co*,o->_o*; once bias",
        "aten::convolution"),
    // Along input channels each part would make the whole gradient of the bias.
    cut("ng*,ng*,g*->ng*,g*,g; sizes groups=g bias_sizes=g; blocks g"
        " | groups=1 transposed=False: _o*,_*,o*->_*,o*,o; sizes bias_sizes=o"
        " | groups=1 transposed=True: _o*,_*,_o*->_*,_o*,o; sizes bias_sizes=o"
        " | groups=1 transposed=False output_mask[2]=False: *,_c*,_c*->_c*,_c*,*"
        " | groups=1 transposed=True output_mask[2]=False: *,_c*,c*->_c*,c*,*",
        "aten::convolution_backward"),
    // Attention: by queries too, where each sees all keys.
    cut("bh*,bh*,bh*,bh__->bh*,bh*; blocks h | is_causal=False: __q_,*,*,__q_->__q_,__q",
        "aten::_scaled_dot_product_flash_attention_for_cpu"),
    cut("bh*,bh*,bh*,bh*,bh*,bh*,bh__->bh*,bh*,bh*"
        " | is_causal=False: __q_,__q_,*,*,__q_,__q,__q_->__q_,*,*",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward"),
    // A mean of parts would need the sum of each, and the whole weight to divide the sum of these by.
    cut("reduction=0: n_,n,_->n, | reduction=2: n_,n,_->,", "aten::nll_loss_forward"),
    cut("reduction=0: n_hw,nhw,_->nhw, | reduction=2: n_hw,nhw,_->,", "aten::nll_loss2d_forward"),
    cut("n,n_,n,_,->n_", "aten::nll_loss_backward"),
    cut("nhw,n_hw,nhw,_,->n_hw", "aten::nll_loss2d_backward"),
    // Reductions.
    cut("...->...; sums dim keepdim", "aten::sum"),
    cut("...->...; drops dim keepdim", "aten::mean"),
};

}  // namespace

std::span<const OpFacts> known_ops() {
  return kTable;
}

std::optional<OpFacts> op_facts(std::string_view name) {
  const auto row = std::ranges::find(kTable, name, &OpFacts::name);
  if (row == kTable.end()) return std::nullopt;
  return *row;
}

}  // namespace lowtide
