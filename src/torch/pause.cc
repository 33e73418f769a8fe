// An operator at which a step can pause (Program::add_pause). It gives a copy of the value. What the step writes and
// leaves behind is among its arguments for the order alone: writes that come before it are done then, later ones not.
//
// And the one at which a region turns (Program::add_turn), between its forward and its backward pass. It does nothing:
// what the forward pass leaves comes before it, what needs a tangent after it.
//
// And the one at which a step ends that leaves gradients in the arena: it does nothing either, and they live up to it.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace lowtide::torch_runtime {
namespace {

at::Tensor pause(const at::Tensor& value, at::TensorList /*lasting*/) {
  return value.clone(at::MemoryFormat::Contiguous);
}

void turn(at::TensorList /*left*/, at::TensorList /*tangents*/) {}

void hand_out(at::TensorList /*results*/) {}

TORCH_LIBRARY_FRAGMENT(lowtide, library) {
  library.def("pause(Tensor value, Tensor[] lasting) -> Tensor");
  library.def("turn(Tensor[] left, Tensor(a!)[] tangents) -> ()");
  library.def("hand_out(Tensor[] results) -> ()");
}

TORCH_LIBRARY_IMPL(lowtide, CompositeExplicitAutograd, library) {
  library.impl("pause", &pause);
  library.impl("turn", &turn);
  library.impl("hand_out", &hand_out);
}

}  // namespace
}  // namespace lowtide::torch_runtime
