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
    cut("->...; sizes size=...", unwritten("aten::empty")),
    cut("...", unwritten("aten::empty_like")),
    unwritten("aten::empty_permuted"),
    unwritten("aten::empty_strided"),
    cut("*->...; sizes size=...", unwritten("aten::new_empty")),
    unwritten("aten::new_empty_strided"),
    cut("_e,...->...e", picks("aten::embedding")),
    cut("...,...->...; whole dim; strict", picks("aten::gather")),
    picks("aten::index"),
    cut("...,_->...; whole dim", picks("aten::index_select")),
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
    pointwise("aten::_prelu_kernel"),
    pointwise("aten::_prelu_kernel_backward"),
    pointwise("aten::_to_copy"),
    pointwise("aten::copy"),
    pointwise("aten::fill"),
    pointwise("aten::full_like"),
    pointwise("aten::hardshrink_backward"),
    pointwise("aten::log_sigmoid_backward"),
    pointwise("aten::log_sigmoid_forward"),
    pointwise("aten::logit_backward"),
    pointwise("aten::native_dropout_backward"),
    pointwise("aten::ones_like"),
    pointwise("aten::softshrink_backward"),
    pointwise("aten::zero"),
    pointwise("aten::zeros_like"),
    // Element by element too, but drawn one after the other: there are no parts.
    over("aten::bernoulli", kFirst),
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
    cut("...,...,...,...,*,*->...,*,*; last normalized_shape; dense mean rstd",
        over("aten::native_layer_norm_backward", kFirstTwo)),
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
    // The same on GPUs. What they say of random numbers, nothing reads where nothing is dropped.
    cut("bh*,bh*,bh*,bh__->bh*,bh*,*,*", "aten::_scaled_dot_product_efficient_attention"),
    cut("bh*,bh*,bh*,bh*,bh__,bh*,bh*,*,*->bh*,bh*,bh*,bh__", "aten::_scaled_dot_product_efficient_attention_backward"),
    cut("bh*,bh*,bh*->bh*,bh*,*,*,*,*,*,*,*; blocks h", "aten::_scaled_dot_product_flash_attention"),
    cut("bh*,bh*,bh*,bh*,bh*,bh*,*,*,*,*->bh*,bh*,bh*", "aten::_scaled_dot_product_flash_attention_backward"),
    // A mean of parts would need the sum of each, and the whole weight to divide the sum of these by.
    cut("reduction=0: n_,n,_->n, | reduction=2: n_,n,_->,", "aten::nll_loss_forward"),
    cut("reduction=0: n_hw,nhw,_->nhw, | reduction=2: n_hw,nhw,_->,", "aten::nll_loss2d_forward"),
    cut("n,n_,n,_,->n_", "aten::nll_loss_backward"),
    cut("nhw,n_hw,nhw,_,->n_hw", "aten::nll_loss2d_backward"),
    cut("reduction=0: ...,...,...->... | reduction=2: ...,...,...->", "aten::binary_cross_entropy"),
    cut("reduction=0: ...,...,...,...->... | reduction=2: ...,...,...,...->", "aten::binary_cross_entropy_with_logits"),
    cut("reduction=0: ...,...->... | reduction=2: ...,...->", "aten::huber_loss"),
    cut("reduction=0: ...,...->... | reduction=2: ...,...->", "aten::mse_loss"),
    cut("reduction=0: ...,...->... | reduction=2: ...,...->", "aten::smooth_l1_loss"),
    cut("reduction=0: ... | reduction=2: ...", "aten::binary_cross_entropy_backward"),
    cut("reduction=0: ... | reduction=2: ...", "aten::huber_loss_backward"),
    cut("reduction=0: ... | reduction=2: ...", "aten::mse_loss_backward"),
    cut("reduction=0: ... | reduction=2: ...", "aten::smooth_l1_loss_backward"),
    // Reductions.
    cut("...->...; sums dim keepdim", "aten::count_nonzero"),
    cut("...->...; sums dim keepdim", "aten::nansum"),
    cut("...->...; sums dim keepdim", "aten::sum"),
    cut("...->...; drops dim keepdim", "aten::all"),
    cut("...->...; drops dim keepdim", "aten::amax"),
    cut("...->...; drops dim keepdim", "aten::amin"),
    cut("...->...; drops dim keepdim", "aten::any"),
    cut("...->...; drops dim keepdim", "aten::argmax"),
    cut("...->...; drops dim keepdim", "aten::argmin"),
    cut("...->...; drops dim keepdim", "aten::linalg_vector_norm"),
    cut("...->...; drops dim keepdim", "aten::logsumexp"),
    cut("...->...; drops dim keepdim", "aten::mean"),
    cut("...->...; drops dim keepdim", "aten::norm"),
    cut("...->...; drops dim keepdim", "aten::prod"),
    cut("...->...; drops dim keepdim", "aten::std"),
    cut("...->...; drops dim keepdim", "aten::var"),
    cut("...->...,...; drops dim keepdim", "aten::kthvalue"),
    cut("...->...,...; drops dim keepdim", "aten::max"),
    cut("...->...,...; drops dim keepdim", "aten::median"),
    cut("...->...,...; drops dim keepdim", "aten::min"),
    cut("...->...,...; drops dim keepdim", "aten::std_mean"),
    cut("...->...,...; drops dim keepdim", "aten::var_mean"),
    // Along other dimensions than this one.
    cut("...->...; whole dim", "aten::argsort"),
    cut("...->...; whole dim", "aten::cat"),
    cut("...->...; whole dim", "aten::cumprod"),
    cut("...->...; whole dim", "aten::cumsum"),
    cut("...->...; whole dim", "aten::glu"),
    cut("...->...; whole dim", "aten::logcumsumexp"),
    cut("...->...,...; whole dim", "aten::cummax"),
    cut("...->...,...; whole dim", "aten::cummin"),
    cut("...->...,...; whole dim", "aten::sort"),
    cut("...->...,...; whole dim", "aten::topk"),
    cut("...,...->...; whole dim", "aten::glu_backward"),
    cut("...,...->...; whole dim", "aten::slice_scatter"),
    cut("...->...; whole dims", "aten::flip"),
    cut("...->...; whole dims", "aten::roll"),
    cut("...,_,...->...; whole dim; strict", "aten::index_add"),
    cut("...,_,...->...; whole dim; strict", "aten::index_copy"),
    cut("...,...,...->...; whole dim; strict | ...,...->...; whole dim; strict", "aten::scatter"),
    cut("...,...,...->...; whole dim; strict", "aten::scatter_add"),
    cut("...,...,...->...; whole dim; strict", "aten::scatter_reduce"),
    cut("...->...; inserts dim", "aten::stack"),
    cut("...->...; inserts dim; sizes input_sizes=...", "aten::select_backward"),
    cut("...->...; whole dim; sizes input_sizes=...", "aten::slice_backward"),
    cut("..._->...; whole dim; sizes input_sizes=...", "aten::unfold_backward"),
    cut("...->...; pads pad", "aten::constant_pad_nd"),
    cut("...__->...__", "aten::tril"),
    cut("...__->...__", "aten::triu"),
    // By columns; by indices each part makes a table, and these are summed.
    cut("*e,*->_e | scale_grad_by_freq=False: ..._,...->*", "aten::embedding_dense_backward"),
    // Images, one by one and channel by channel.
    cut("nc_->nc_", "aten::upsample_linear1d"),
    cut("nc_->nc_", "aten::upsample_nearest1d"),
    cut("nc__->nc__", "aten::_adaptive_avg_pool2d"),
    cut("nc__->nc__", "aten::avg_pool2d"),
    cut("nc__->nc__", "aten::reflection_pad2d"),
    cut("nc__->nc__", "aten::replication_pad2d"),
    cut("nc__->nc__", "aten::upsample_bicubic2d"),
    cut("nc__->nc__", "aten::upsample_bilinear2d"),
    cut("nc__->nc__", "aten::upsample_nearest2d"),
    cut("nc___->nc___", "aten::_adaptive_avg_pool3d"),
    cut("nc___->nc___", "aten::avg_pool3d"),
    cut("nc___->nc___", "aten::upsample_nearest3d"),
    cut("nc___->nc___", "aten::upsample_trilinear3d"),
    cut("nc__,nc__->nc__", "aten::_adaptive_avg_pool2d_backward"),
    cut("nc__,nc__->nc__", "aten::avg_pool2d_backward"),
    cut("nc__,nc__->nc__", "aten::reflection_pad2d_backward"),
    cut("nc__,nc__->nc__", "aten::replication_pad2d_backward"),
    cut("nc___,nc___->nc___", "aten::_adaptive_avg_pool3d_backward"),
    cut("nc___,nc___->nc___", "aten::avg_pool3d_backward"),
    cut("nc_->nc_; sizes input_size=nc_", "aten::upsample_linear1d_backward"),
    cut("nc_->nc_; sizes input_size=nc_", "aten::upsample_nearest1d_backward"),
    cut("nc__->nc__; sizes input_size=nc__", "aten::upsample_bicubic2d_backward"),
    cut("nc__->nc__; sizes input_size=nc__", "aten::upsample_bilinear2d_backward"),
    cut("nc__->nc__; sizes input_size=nc__", "aten::upsample_nearest2d_backward"),
    cut("nc___->nc___; sizes input_size=nc___", "aten::upsample_nearest3d_backward"),
    cut("nc___->nc___; sizes input_size=nc___", "aten::upsample_trilinear3d_backward"),
    cut("nc__->nc__,nc__", "aten::adaptive_max_pool2d"),
    cut("nc__->nc__,nc__", "aten::max_pool2d_with_indices"),
    cut("nc__,nc__,nc__->nc__", "aten::adaptive_max_pool2d_backward"),
    cut("nc__,nc__,nc__->nc__", "aten::max_pool2d_with_indices_backward"),
    cut("nc___->nc___,nc___", "aten::max_pool3d_with_indices"),
    cut("nc___,nc___,nc___->nc___", "aten::max_pool3d_with_indices_backward"),
    cut("nc__,n___->nc__", "aten::grid_sampler_2d"),
    cut("nc__,nc__,n___->nc__,n___", "aten::grid_sampler_2d_backward"),
    // New tensors.
    cut("->...; sizes size=...", "aten::full"),
    cut("->...; sizes size=...", "aten::ones"),
    cut("->...; sizes size=...", "aten::zeros"),
    cut("*->...; sizes size=...", "aten::new_full"),
    cut("*->...; sizes size=...", "aten::new_ones"),
    cut("*->...; sizes size=...", "aten::new_zeros"),
    // Updates: each number of a parameter with those of its gradient and state. The last operands are single numbers.
    cut("...,...,...,...,...,*,*,*->; strict; dense | ...,...,...,...,...,*,*,*,*->; strict; dense",
        "aten::_fused_adam_"),
    cut("...,...,...,...,...,*,*,*->; strict; dense | ...,...,...,...,...,*,*,*,*->; strict; dense",
        "aten::_fused_adamw_"),
    cut("...,...,...,*,*->; strict; dense | ...,...,...,*,*,*->; strict; dense", "aten::_fused_sgd_"),
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
