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
            .result_over = kFirst},
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
    over("aten::abs", kFirst),
    over("aten::acos", kFirst),
    over("aten::add", kFirstTwo),
    over("aten::addcdiv", kFirstThree),
    over("aten::addcmul", kFirstThree),
    over("aten::asin", kFirst),
    over("aten::atan", kFirst),
    over("aten::atan2", kFirstTwo),
    over("aten::ceil", kFirst),
    over("aten::clamp", kFirst),
    over("aten::clamp_max", kFirst),
    over("aten::clamp_min", kFirst),
    over("aten::clone", kFirst),
    over("aten::cos", kFirst),
    over("aten::cosh", kFirst),
    over("aten::div", kFirstTwo),
    over("aten::elu", kFirst),
    over("aten::elu_backward", kFirstAndSixth),
    over("aten::erf", kFirst),
    over("aten::erfc", kFirst),
    over("aten::exp", kFirst),
    over("aten::exp2", kFirst),
    over("aten::expm1", kFirst),
    over("aten::floor", kFirst),
    over("aten::frac", kFirst),
    over("aten::gelu", kFirst),
    over("aten::gelu_backward", kFirstTwo),
    over("aten::hardsigmoid", kFirst),
    over("aten::hardsigmoid_backward", kFirstTwo),
    over("aten::hardswish", kFirst),
    over("aten::hardswish_backward", kFirstTwo),
    over("aten::hardtanh", kFirst),
    over("aten::hardtanh_backward", kFirstTwo),
    over("aten::leaky_relu", kFirst),
    over("aten::leaky_relu_backward", kFirstTwo),
    over("aten::lerp", kFirstTwo),
    over("aten::log", kFirst),
    over("aten::log10", kFirst),
    over("aten::log1p", kFirst),
    over("aten::log2", kFirst),
    over("aten::logical_not", kFirst),
    over("aten::logit", kFirst),
    over("aten::masked_fill", kFirst),
    over("aten::maximum", kFirstTwo),
    over("aten::minimum", kFirstTwo),
    over("aten::mish", kFirst),
    over("aten::mish_backward", kFirstTwo),
    over("aten::mul", kFirstTwo),
    over("aten::neg", kFirst),
    over("aten::pow", kFirst),
    over("aten::reciprocal", kFirst),
    over("aten::relu", kFirst),
    over("aten::round", kFirst),
    over("aten::rsqrt", kFirst),
    over("aten::rsub", kFirstTwo),
    over("aten::sgn", kFirst),
    over("aten::sigmoid", kFirst),
    over("aten::sigmoid_backward", kFirstTwo),
    over("aten::sign", kFirst),
    over("aten::silu", kFirst),
    over("aten::silu_backward", kFirstTwo),
    over("aten::sin", kFirst),
    over("aten::sinh", kFirst),
    over("aten::softplus", kFirst),
    over("aten::softplus_backward", kFirstTwo),
    over("aten::sqrt", kFirst),
    over("aten::square", kFirst),
    over("aten::sub", kFirstTwo),
    over("aten::tan", kFirst),
    over("aten::tanh", kFirst),
    over("aten::tanh_backward", kFirstTwo),
    over("aten::threshold", kFirst),
    over("aten::threshold_backward", kFirstTwo),
    over("aten::trunc", kFirst),
    over("aten::where", kSecondAndThird),
    // Row by row or channel by channel: what is needed of a row is read before it is written.
    over("aten::_log_softmax", kFirst),
    over("aten::_log_softmax_backward_data", kFirstTwo),
    over("aten::_softmax", kFirst),
    over("aten::_softmax_backward_data", kFirstTwo),
    // Not over the gradient: where the two lie in memory differently, it is read once more after the first write.
    over("aten::native_batch_norm_backward", kSecond),
    over("aten::native_group_norm", kFirst),
    over("aten::native_group_norm_backward", kFirstTwo),
    over("aten::native_layer_norm", kFirst),
    over("aten::native_layer_norm_backward", kFirstTwo),
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
