#include "lowtide/ops.h"

#include <algorithm>
#include <array>

namespace lowtide {
namespace {

constexpr std::uint32_t kRunningStatistics[] = {3, 4};

// One row for each op of which more is known than its schema says.
constexpr std::array kTable = {
    // In training it updates running_mean and running_var, which its schema shows as plain inputs.
    OpFacts{"aten::native_batch_norm", {.condition = 5, .arguments = kRunningStatistics}},
    // While gradients are enabled it hands its backward a workspace in oneDNN's own format.
    // It does not write all of that workspace.
    OpFacts{.name = "aten::mkldnn_rnn_layer",
            .hidden_writes = {},
            .runtime_sized_result = 3,
            .sees_grad_mode = true,
            .leaves_results_unwritten = true},
    OpFacts{.name = "aten::empty", .hidden_writes = {}, .leaves_results_unwritten = true},
    OpFacts{.name = "aten::empty_like", .hidden_writes = {}, .leaves_results_unwritten = true},
    OpFacts{.name = "aten::empty_permuted", .hidden_writes = {}, .leaves_results_unwritten = true},
    OpFacts{.name = "aten::empty_strided", .hidden_writes = {}, .leaves_results_unwritten = true},
    OpFacts{.name = "aten::new_empty", .hidden_writes = {}, .leaves_results_unwritten = true},
    OpFacts{.name = "aten::new_empty_strided", .hidden_writes = {}, .leaves_results_unwritten = true},
};

}  // namespace

std::optional<OpFacts> op_facts(std::string_view name) {
  const auto row = std::ranges::find(kTable, name, &OpFacts::name);
  if (row == kTable.end()) return std::nullopt;
  return *row;
}

}  // namespace lowtide
