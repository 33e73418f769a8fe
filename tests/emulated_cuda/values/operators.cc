// Values for kernels that do nothing. Every operator with a kernel for CUDA gets one in front of it:
//
//   1. CUDA's own kernel runs, with launches that do nothing: real allocations and waits, the generator's offset.
//   2. The CPU's kernel is queued on the current stream, over the shadow bytes of the same tensors.
//
// It stands at the dispatch key CUDA itself, so that it sees every call however it comes there: from Python, from
// autograd's threads, from an executor that redispatches to a key. Only the outermost operator is computed, and once:
// what CUDA's kernel calls inside allocates and does nothing. A kernel that is launched outside an operator aborts.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <memory>
#include <string>
#include <utility>

#include "../runtime/interface.h"
#include "computation.h"
#include "draws.h"
#include "host_view.h"
#include "poison.h"
#include "rules.h"

namespace emulated_cuda {
namespace {

using torch::jit::Stack;

thread_local bool inside = false;

c10::Device device_of(const Stack& arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_cuda()) return value.toTensor().device();
    if (value.isDevice() && value.toDevice().is_cuda() && value.toDevice().has_index()) return value.toDevice();
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.is_cuda()) return tensor.device();
    }
  }
  return {c10::kCUDA, c10::cuda::current_device()};
}

struct Time {
  int engine = 1;
  double seconds = 0;
};
Time time_of(const c10::OperatorHandle& op, const Stack& arguments, const Stack& results) {
  if (op.schema().name() == "aten::copy_") {
    const at::Tensor &to = arguments[0].toTensor(), &from = arguments[1].toTensor();
    if (to.device() != from.device()) return {to.is_cuda() ? 2 : 3, emulated_cuda_link_seconds(to.nbytes())};
  }
  return {1, emulated_cuda_kernel_seconds(bytes_of(arguments) + bytes_of(results), flops_of(op, arguments, results))};
}

class FrontKernel final : public c10::OperatorKernel {
 public:
  FrontKernel(c10::SafeKernelFunction cuda, Rule rule) : cuda_(std::move(cuda)), rule_(rule) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const bool computes = rule_ == Rule::computed || rule_ == Rule::computed_in_float32;
    if (rule_ == Rule::as_it_is || (computes && inside)) return cuda_.callBoxed(op, keys, stack);
    const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()), stack->end());
    const c10::Device device = device_of(arguments);
    if (computes) return compute(op, keys, stack, arguments, device);
    answer(op, keys, stack, arguments, device);
  }

 private:
  // CUDA's kernel, with launches that do nothing. Whether it waited for the device.
  bool run_cuda(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    struct Inside {
      Inside() { emulated_cuda_enter_operator(); }
      ~Inside() {
        inside = before;
        if (!left) emulated_cuda_leave_operator();
      }
      bool before = std::exchange(inside, true), left = false;
    } scope;
    cuda_.callBoxed(op, keys, stack);
    scope.left = true;
    return emulated_cuda_leave_operator() != 0;
  }

  void compute(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack, const Stack& arguments,
               c10::Device device) const {
    const auto state = draw_state(op, arguments, device);
    const bool waited = run_cuda(op, keys, stack);
    const auto& returns = op.schema().returns();
    const Stack results(stack->end() - static_cast<std::ptrdiff_t>(returns.size()), stack->end());
    auto work = std::make_unique<Computation>(op, rule_, arguments, state);
    for (std::size_t i = 0; i < results.size(); ++i) {  // results that are arguments are written through these
      const bool is_tensor = results[i].isTensor() || results[i].isTensorList();
      if (is_tensor && returns[i].alias_info() == nullptr) work->fill(i, results[i]);
    }
    const auto stream = c10::cuda::getCurrentCUDAStream(device.index());
    const Time time = time_of(op, arguments, results);
    emulated_cuda_enqueue(
        stream.stream(),
        [](void* data) {
          const std::unique_ptr<Computation> owned(static_cast<Computation*>(data));
          owned->run();
        },
        work.release(), time.engine, time.seconds);
    if (waited) stream.synchronize();
  }

  void answer(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack, const Stack& arguments,
              c10::Device device) const {
    if (rule_ == Rule::for_the_host) {
      run_cuda(op, keys, stack);
      torch::jit::drop(*stack, op.schema().returns().size());
    } else {
      torch::jit::drop(*stack, arguments.size());
    }
    c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
    for (const c10::IValue& result : Computation(op, rule_, arguments, std::nullopt).results()) {
      stack->push_back(rule_ == Rule::for_the_host ? result : to_device(result, device));
    }
  }

  c10::SafeKernelFunction cuda_;
  Rule rule_;
};

// Stands in for the warnings that a kernel replaces another: here all do.
class Silence final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

int install() {
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  int count = 0;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() != "aten") continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || (!op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) && !is_one_operation(name))) continue;
    const Rule rule = rule_for(*op);
    if (rule == Rule::as_it_is) continue;
    const std::string full = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    auto kernel = std::make_unique<FrontKernel>(op->getComputedKernelForDispatchKey(c10::DispatchKey::CUDA), rule);
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
    ++count;
  }
  emulated_cuda_expect_operators();
  poison_what_is_freed();
  return count;
}

}  // namespace
}  // namespace emulated_cuda

// Puts a kernel in front of each operator of CUDA's. CUDA must be initialized. Returns how many there are.
EMULATED_CUDA_API int emulated_cuda_install_values() {
  return emulated_cuda::install();
}
