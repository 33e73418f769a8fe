// tier_bindings.h: files to swap to, as Python sees them.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace lowtide::torch_runtime {

void bind_tier(pybind11::module_& module);

}  // namespace lowtide::torch_runtime
