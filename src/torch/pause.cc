// An operator at which a step can pause (Program::add_pause). It gives a copy of the value. What the step writes and
// leaves behind is among its arguments for the order alone: writes that come before it are done then, later ones not.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace lowtide::torch_runtime {
namespace {

at::Tensor pause(const at::Tensor& value, at::TensorList /*lasting*/) {
  return value.clone(at::MemoryFormat::Contiguous);
}

TORCH_LIBRARY_FRAGMENT(lowtide, library) {
  library.def("pause(Tensor value, Tensor[] lasting) -> Tensor");
}

TORCH_LIBRARY_IMPL(lowtide, CompositeExplicitAutograd, library) {
  library.impl("pause", &pause);
}

}  // namespace
}  // namespace lowtide::torch_runtime
