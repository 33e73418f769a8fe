#include "tier_bindings.h"

#include <ATen/ATen.h>
#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "file_tier.h"
#include "tier/faults.h"
#include "tier/file_error.h"
#include "tier/file_mappings.h"
#include "tier/measure_link.h"
#include "tier/tier_file.h"

namespace py = pybind11;

namespace lowtide::torch_runtime {
namespace {

using tier::Fault;
using tier::Faults;
using tier::Ticket;
using tier::TierFile;
using tier::TierOptions;
using tier::Way;

template <typename Value>
Value read_word(const std::map<std::string, Value>& words, const std::string& word, const char* what) {
  const auto found = words.find(word);
  TORCH_CHECK_VALUE(found != words.end(), "lowtide: unknown ", what, " '", word, "'");
  return found->second;
}

std::shared_ptr<TierFile> open_file(const std::string& folder, const std::string& way, bool direct,
                                    std::chrono::milliseconds patience) {
  static const std::map<std::string, Way> ways = {
      {"best", Way::best}, {"io_uring", Way::io_uring}, {"threads", Way::threads}};
  TierOptions options;
  options.way = read_word(ways, way, "way");
  options.direct = direct;
  options.patience = patience;
  const py::gil_scoped_release released;
  return TierFile::open(folder, options);
}

std::shared_ptr<Faults> read_faults(const std::map<std::uint64_t, std::string>& kinds) {
  static const std::map<std::string, Fault> words = {{"short_transfer", Fault::short_transfer},
                                                     {"io_error", Fault::io_error},
                                                     {"no_space", Fault::no_space},
                                                     {"stuck", Fault::stuck},
                                                     {"flipped_byte", Fault::flipped_byte}};
  std::map<std::uint64_t, Fault> faults;
  for (const auto& [transfer, kind] : kinds) faults[transfer] = read_word(words, kind, "fault");
  return std::make_shared<Faults>(std::move(faults));
}

// The slot and its mapping are the tensor's: they go with its storage.
at::Tensor make_home(const std::shared_ptr<TierFile>& file, std::int64_t bytes) {
  TORCH_CHECK_VALUE(bytes > 0, "lowtide: expected a size above 0, got ", bytes);
  c10::Storage home(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(bytes), FileTier(file).make_home(bytes),
                    nullptr, /*resizable=*/false);
  return at::empty({0}, at::TensorOptions(at::kByte)).set_(home, 0, {bytes}, {1});
}

struct Stretch {
  std::byte* begin;
  std::int64_t bytes;
};

Stretch stretch_of(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.is_cpu() && tensor.is_contiguous(), "lowtide: expected a contiguous tensor on the CPU");
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::int64_t>(tensor.nbytes())};
}

}  // namespace

void bind_tier(py::module_& module) {
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const tier::FileError& error) {
      const py::tuple arguments = py::make_tuple(error.code().value(), error.what());
      PyErr_SetObject(PyExc_OSError, arguments.ptr());
    }
  });

  // What waits for the disk lets others run.
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<TierFile, std::shared_ptr<TierFile>>(module, "TierFile", py::release_gil_before_calling_cpp_dtor())
      .def(py::init(&open_file), py::arg("folder"), py::arg("way") = "best", py::arg("direct") = true,
           py::arg("patience") = TierOptions().patience)
      .def_property_readonly("folder", &TierFile::folder)
      .def_property_readonly("way", [](const TierFile& self) { return self.uses_ring() ? "io_uring" : "threads"; })
      .def_property_readonly("direct", &TierFile::is_direct)
      .def("reserve", &TierFile::reserve, py::arg("bytes"), Released())
      .def("release", &TierFile::release, py::arg("offset"), py::arg("bytes"), Released())
      .def("tensor", &make_home, py::arg("bytes"), Released())
      .def(
          "store",
          [](TierFile& self, const at::Tensor& tensor, std::int64_t offset) {
            const Stretch from = stretch_of(tensor);
            return self.store(from.begin, offset, from.bytes);
          },
          py::arg("tensor"), py::arg("offset"), Released())
      .def(
          "load",
          [](TierFile& self, const at::Tensor& tensor, std::int64_t offset) {
            const Stretch to = stretch_of(tensor);
            return self.load(to.begin, offset, to.bytes);
          },
          py::arg("tensor"), py::arg("offset"), Released())
      .def("wait", &TierFile::wait, py::arg("ticket"), Released())
      .def("wait_all", &TierFile::wait_all, Released())
      .def(
          "set_faults",
          [](TierFile& self, const std::map<std::uint64_t, std::string>& kinds) {
            self.set_faults(kinds.empty() ? nullptr : read_faults(kinds));
          },
          py::arg("kinds"))
      .def_static(
          "find",
          [](const at::Tensor& tensor) -> std::optional<std::pair<std::shared_ptr<TierFile>, std::int64_t>> {
            std::optional<TierFile::Place> place = TierFile::find(tensor.const_data_ptr());
            if (!place) return std::nullopt;
            return std::make_pair(std::move(place->file), place->offset);
          },
          py::arg("tensor"))
      .def_static(
          "is_touched",
          [](const at::Tensor& tensor) {
            const Stretch home = stretch_of(tensor);
            return TierFile::is_touched(home.begin, home.bytes);
          },
          py::arg("tensor"))
      .def_static(
          "forget_pages",
          [](const at::Tensor& tensor) {
            const Stretch home = stretch_of(tensor);
            TierFile::forget_pages(home.begin, home.bytes);
          },
          py::arg("tensor"), Released());
  module.def("has_homes", &tier::any_mapped);
  module.def(
      "measure_link",
      [](const std::string& folder) {
        const Link link = tier::measure_link(folder);
        return std::make_tuple(link.store_per_second.count(), link.load_per_second.count(), link.latency.count());
      },
      py::arg("folder"), Released());
}

}  // namespace lowtide::torch_runtime
