#include "packing.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "lowtide/layout.h"
#include "lowtide/published.h"
#include "raise.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lowtide::python {
namespace {

using Counts = std::vector<std::uint64_t>;

std::tuple<Counts, std::uint64_t, std::uint64_t, std::string> pack(const std::vector<std::uint32_t>& begins,
                                                                   const std::vector<std::uint32_t>& ends,
                                                                   const Counts& sizes, std::uint64_t alignment,
                                                                   const Counts& fixed, std::string_view algorithm,
                                                                   std::uint64_t steps) {
  if (begins.size() != sizes.size() || ends.size() != sizes.size() || fixed.size() > sizes.size()) {
    throw nb::value_error("begins, ends and sizes have a number for each item, and no more are fixed");
  }
  const NamedLayout named = take([&] {
    const nb::gil_scoped_release released;
    std::vector<LayoutItem> items;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      items.push_back({StepIndex(begins[i]), StepIndex(ends[i]), Bytes(sizes[i]), Bytes(alignment)});
      if (i < fixed.size()) items.back().fixed = Bytes(fixed[i]);
    }
    return lay_out(items, {.algorithm = algorithm, .others = published().layouts, .steps = steps});
  }());
  Counts offsets;
  for (const Bytes offset : named.layout.offsets) offsets.push_back(offset.count());
  return {std::move(offsets), named.layout.arena.count(), named.bound.count(), std::string(named.algorithm)};
}

}  // namespace

void bind_packing(nb::module_& m) {
  m.def("lay_out", pack, "begins"_a, "ends"_a, "sizes"_a, nb::kw_only(), "alignment"_a, "fixed"_a, "algorithm"_a,
        "steps"_a);
}

}  // namespace lowtide::python
