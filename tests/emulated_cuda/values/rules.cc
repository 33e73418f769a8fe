#include "rules.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "formulas.h"

namespace emulated_cuda {
namespace {

using Names = std::unordered_set<std::string>;

const Names kWithoutValues = {
    "aten::empty",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::resize_",
    "aten::_resize_output_",
    "aten::set_",
    "aten::record_stream",
    "aten::is_pinned",
    "aten::_pin_memory",
    "aten::_fused_sdp_choice",
    "aten::is_set_to",
    "aten::_efficientzerotensor",
    "aten::_use_cudnn_ctc_loss",
};
const Names kInFloat32 = {
    "aten::native_layer_norm",          "aten::native_layer_norm_backward", "aten::native_group_norm",
    "aten::native_group_norm_backward", "aten::native_batch_norm",          "aten::native_batch_norm_backward",
    "aten::_native_batch_norm_legit",   "aten::_batch_norm_with_update",    "aten::batch_norm_backward",
};
const Names kOneOperation = {"aten::copy_", "aten::convolution", "aten::convolution_backward"};

bool has_tag(const c10::OperatorHandle& op, at::Tag tag) {
  const auto& tags = op.getTags();
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

bool is_view(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return has_tag(op, at::Tag::inplace_view) || std::any_of(returns.begin(), returns.end(), [](const c10::Argument& r) {
           return r.alias_info() != nullptr && !r.alias_info()->isWrite();
         });
}

bool returns_tensors(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return std::all_of(returns.begin(), returns.end(), [](const c10::Argument& r) {
    return r.type()->isSubtypeOf(*c10::TensorType::get()) || r.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

template <class Visit>
void for_each_tensor(const torch::jit::Stack& values, Visit visit) {
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) visit(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  }
}

}  // namespace

Rule rule_for(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  if (formula_of(op) != nullptr) return Rule::computed;
  if (kWithoutValues.contains(name) || is_view(op)) return Rule::as_it_is;
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return Rule::as_it_is;
  if (!returns_tensors(op)) return Rule::for_the_host;
  if (has_tag(op, at::Tag::dynamic_output_shape)) return Rule::sized_by_values;
  return kInFloat32.contains(name) ? Rule::computed_in_float32 : Rule::computed;
}

bool is_one_operation(const c10::OperatorName& name) {
  return kOneOperation.contains(name.name) && name.overload_name.empty();
}

double bytes_of(const torch::jit::Stack& values) {
  double bytes = 0;
  for_each_tensor(values, [&](const at::Tensor& tensor) { bytes += static_cast<double>(tensor.nbytes()); });
  return bytes;
}

double flops_of(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const torch::jit::Stack& results) {
  const std::string& name = op.schema().name();
  const auto made = [&](double per_element) {
    return 2 * per_element * static_cast<double>(results.front().toTensor().numel());
  };
  if (name == "aten::mm" || name == "aten::bmm") return made(static_cast<double>(arguments[0].toTensor().size(-1)));
  if (name == "aten::addmm" || name == "aten::baddbmm")
    return made(static_cast<double>(arguments[1].toTensor().size(-1)));
  const auto per_output = [](const at::Tensor& weight) {
    return static_cast<double>(weight.numel()) / static_cast<double>(weight.size(0));
  };
  if (name == "aten::convolution") return made(per_output(arguments[1].toTensor()));
  if (name == "aten::convolution_backward") {  // once for the input, once for the weight
    return 4 * static_cast<double>(arguments[0].toTensor().numel()) * per_output(arguments[2].toTensor());
  }
  return 0;
}

}  // namespace emulated_cuda
