// adapt.h: plans for batches as they come, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace lowtide::python {

void bind_adapt(nanobind::module_& m);

}  // namespace lowtide::python
