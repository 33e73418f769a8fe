#include "computation.h"

#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "formulas.h"

namespace emulated_cuda {
namespace {

using torch::jit::Stack;

// The CPU's kernels see no autograd, autocast or mode of the thread that happens to run them.
class PlainDispatch {
 public:
  PlainDispatch()
      : guard_(c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
               c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset),
        mode_(c10::AutogradState(false, false, false, false)) {}

 private:
  struct Mode {
    explicit Mode(c10::AutogradState state) { c10::AutogradState::set_tls_state(state); }
    ~Mode() { c10::AutogradState::set_tls_state(before); }
    c10::AutogradState before = c10::AutogradState::get_tls_state();
  };
  c10::impl::ForceDispatchKeyGuard guard_;
  Mode mode_;
};

// Arguments of low precision as float32. At the end they are written back: running statistics change, and schemas do
// not say so.
class InFloat32 {
 public:
  explicit InFloat32(Stack& arguments) {
    for (c10::IValue& argument : arguments) {
      if (!argument.isTensor() || !argument.toTensor().defined()) continue;
      const at::Tensor low = argument.toTensor();
      if (low.scalar_type() != at::kHalf && low.scalar_type() != at::kBFloat16) continue;
      argument = low.to(at::kFloat);
      converted_.emplace_back(low, argument.toTensor());
    }
  }
  void write_back() const {
    for (const auto& [low, full] : converted_) low.copy_(full);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> converted_;
};

}  // namespace

Computation::Computation(const c10::OperatorHandle& op, Rule rule, const Stack& arguments,
                         std::optional<DrawState> state)
    : op_(op), rule_(rule), state_(state) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto* const alias = op.schema().arguments()[i].alias_info();
    arguments_.push_back(views_.argument(arguments[i], alias != nullptr && alias->isWrite()));
  }
}

void Computation::fill(std::size_t i, const c10::IValue& result) {
  targets_.emplace_back(i, views_.argument(result, true));
}

Stack Computation::results() {
  const PlainDispatch plain;
  if (const Formula formula = formula_of(op_)) return formula(arguments_, state_);
  std::optional<InFloat32> full;
  if (rule_ == Rule::computed_in_float32) full.emplace(arguments_);
  const Drawing drawing(op_, state_, arguments_);
  op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &arguments_);
  if (full) full->write_back();
  return std::move(arguments_);
}

void Computation::run() {
  const Stack made = results();
  const PlainDispatch plain;
  for (const auto& [i, target] : targets_) {
    if (target.isTensor()) {
      store(made[i].toTensor(), target.toTensor());
      continue;
    }
    const auto from = made[i].toTensorVector(), to = target.toTensorVector();
    for (std::size_t j = 0; j < to.size(); ++j) store(from[j], to[j]);
  }
}

// A result that CUDA leaves empty has no use on the device. Normalizations leave statistics empty on the CPU if nothing
// reads them.
void Computation::store(const at::Tensor& from, const at::Tensor& to) const {
  if (!from.defined() || !to.defined() || to.numel() == 0) return;
  if (rule_ == Rule::computed_in_float32 && from.numel() == 0) return;
  TORCH_CHECK(from.sizes() == to.sizes(), "emulated CUDA: ", op_.schema().name(), " gives ", to.sizes(),
              " on CUDA and ", from.sizes(), " on the CPU");
  to.copy_(from);
}

}  // namespace emulated_cuda
