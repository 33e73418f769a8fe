// packing.h: layouts of items, without a graph, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace lowtide::python {

void bind_packing(nanobind::module_& m);

}  // namespace lowtide::python
