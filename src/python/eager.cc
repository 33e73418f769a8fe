#include "lowtide/eager.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "eager.h"
#include "raise.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lowtide::python {
namespace {

using Count = std::optional<std::uint64_t>;

Bytes to_capacity(Count bytes) {
  return bytes ? Bytes(*bytes) : Bytes::max();
}

// Figures that both the allocator and a run have.
template <typename Class>
void bind_stats(nb::class_<Class>& bound, const AllocatorStats& (*stats)(const Class&)) {
  bound.def_prop_ro("live_bytes", [stats](const Class& self) { return stats(self).requested.now.count(); })
      .def_prop_ro("allocated_bytes", [stats](const Class& self) { return stats(self).allocated.now.count(); })
      .def_prop_ro("reserved_bytes", [stats](const Class& self) { return stats(self).reserved.now.count(); })
      .def_prop_ro("peak_live_bytes", [stats](const Class& self) { return stats(self).requested.peak.count(); })
      .def_prop_ro("peak_allocated_bytes", [stats](const Class& self) { return stats(self).allocated.peak.count(); })
      .def_prop_ro("peak_reserved_bytes", [stats](const Class& self) { return stats(self).reserved.peak.count(); })
      .def_prop_ro("fragmentation", [stats](const Class& self) { return stats(self).fragmentation(); })
      .def_prop_ro("segments", [stats](const Class& self) { return stats(self).segments; })
      .def_prop_ro("device_allocs", [stats](const Class& self) { return stats(self).device_allocs; })
      .def_prop_ro("device_frees", [stats](const Class& self) { return stats(self).device_frees; })
      .def_prop_ro("retries", [stats](const Class& self) { return stats(self).retries; })
      .def_prop_ro("ooms", [stats](const Class& self) { return stats(self).ooms; });
}

nb::dict to_dict(const OutOfMemory& full) {
  nb::dict fields;
  fields["requested_bytes"] = full.requested.count();
  fields["tried_bytes"] = full.tried.count();
  fields["capacity_bytes"] = full.capacity.count();
  fields["free_bytes"] = full.free.count();
  fields["allocated_bytes"] = full.allocated.count();
  fields["reserved_bytes"] = full.reserved.count();
  return fields;
}

// Requests by number with their sizes, 0 for a release, over and over; the nanoseconds that the last time took.
double play(CachingAllocator& allocator, const std::vector<std::pair<std::uint32_t, std::uint64_t>>& events,
            std::size_t iterations) {
  std::vector<RequestId> given;
  for (const auto& [request, size] : events) given.resize(std::max<std::size_t>(given.size(), request + 1));
  double nanos = 0;
  for (std::size_t i = 0; i < iterations; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    for (const auto& [request, size] : events) {
      if (size != 0) {
        given[request] = take(allocator.allocate(Bytes(size)));
      } else {
        take(allocator.free(given[request]));
      }
    }
    nanos = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
  }
  return nanos;
}

void bind_allocator(nb::module_& m) {
  nb::class_<CachingAllocator> bound(m, "CachingAllocator");
  bound
      .def(nb::new_([](std::string_view settings, Count capacity) {
             return take(CachingAllocator::make(take(parse_allocator_settings(settings)), to_capacity(capacity)));
           }),
           "settings"_a = "", "capacity"_a = nb::none())
      .def(
          "allocate",
          [](CachingAllocator& self, std::uint64_t size, std::uint32_t stream) {
            return take(self.allocate(Bytes(size), stream)).value();
          },
          "size"_a, "stream"_a = 0)
      .def(
          "free", [](CachingAllocator& self, std::uint32_t request) { take(self.free(RequestId(request))); },
          "request"_a)
      .def("empty_cache", &CachingAllocator::empty_cache)
      .def("play", play, "events"_a, "iterations"_a)
      .def(
          "block",
          [](const CachingAllocator& self, std::uint32_t request) {
            std::optional<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> found;
            if (const auto block = self.block(RequestId(request))) {
              found.emplace(block->segment, block->offset.count(), block->size.count());
            }
            return found;
          },
          "request"_a);
  bind_stats<CachingAllocator>(
      bound, +[](const CachingAllocator& self) -> const AllocatorStats& { return self.stats(); });
}

EagerMemory run(const Graph& graph, std::string_view settings, Count capacity, std::size_t iterations) {
  const EagerOptions options{take(parse_allocator_settings(settings)), to_capacity(capacity), iterations};
  return take([&] {
    const nb::gil_scoped_release released;
    return run_eager(graph, options);
  }());
}

void bind_run(nb::module_& m) {
  nb::class_<EagerMemory> bound(m, "EagerMemory");
  bound.def_prop_ro("resident_bytes", [](const EagerMemory& self) { return self.resident.count(); })
      .def_prop_ro("fits", [](const EagerMemory& self) { return !self.stop; })
      .def_prop_ro("stopped_at",
                   [](const EagerMemory& self) -> std::optional<std::uint32_t> {
                     if (!self.stop || !self.stop->op) return std::nullopt;
                     return self.stop->op->value();
                   })
      .def_prop_ro("out_of_memory", [](const EagerMemory& self) -> std::optional<nb::dict> {
        if (!self.stop) return std::nullopt;
        return to_dict(self.stop->out_of_memory);
      });
  bind_stats<EagerMemory>(bound, +[](const EagerMemory& self) -> const AllocatorStats& { return self.allocator; });
  m.def("run_eager", run, "graph"_a, "settings"_a = "", "capacity"_a = nb::none(), "iterations"_a = 3);
}

}  // namespace

void bind_eager(nb::module_& m) {
  bind_allocator(m);
  bind_run(m);
}

}  // namespace lowtide::python
