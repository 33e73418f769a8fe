#include "raise.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace lowtide::python {
namespace {

// The classes are looked up when first needed: lowtide.errors is Python, and importing it from here at load time would
// be a cycle.
nb::object make_exception(const Error& error, const char* wrong_file) {
  const std::string code = code_text(error.code);
  const std::string message = code + ": " + error.message;
  switch (static_cast<unsigned>(error.code) / 100) {
    case 1:
      return nb::module_::import_("lowtide.errors").attr("InvalidGraphError")(message, "code"_a = code);
    case 2:
      return nb::module_::import_("lowtide.errors").attr("InvalidPlanError")(message, "code"_a = code);
    case 3: {
      std::vector<std::pair<std::string, std::uint64_t>> culprits;
      for (const Culprit& culprit : error.infeasible.culprits)
        culprits.emplace_back(culprit.name, culprit.size.count());
      return nb::module_::import_("lowtide.errors")
          .attr("InfeasibleError")(message, "code"_a = code, "bound_bytes"_a = error.infeasible.bound.count(),
                                   "step"_a = error.infeasible.step.value(), "culprits"_a = culprits);
    }
    case 4:
      return nb::module_::import_("lowtide.errors").attr("LimitError")(message, "code"_a = code);
    case 6:
      if (error.code == ErrorCode::file_error) {  // two arguments give FileNotFoundError and its like
        return nb::module_::import_("builtins").attr("OSError")(error.system_error, message);
      }
      return nb::module_::import_("lowtide.errors").attr(wrong_file)(message, "code"_a = code);
    default:
      return nb::module_::import_("builtins").attr("ValueError")(message);
  }
}

}  // namespace

void raise(const Error& error, const char* wrong_file) {
  const nb::object exception = make_exception(error, wrong_file);
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  throw nb::python_error();
}

}  // namespace lowtide::python
