// eager_replay_bindings.h: eager replay for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace lowtide::torch_runtime {

void bind_eager_replay(pybind11::module_& module);

}  // namespace lowtide::torch_runtime
