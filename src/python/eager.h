// eager.h: PyTorch's caching allocator and eager execution, simulated, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace lowtide::python {

void bind_eager(nanobind::module_& m);

}  // namespace lowtide::python
