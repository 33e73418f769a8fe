#include "eager_replay_bindings.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "allocation_time.h"
#include "allocator.h"
#include "device_replay.h"
#include "eager_replay.h"

namespace py = pybind11;

namespace lowtide::torch_runtime {
namespace {

using replay::Script;
using replay::Suits;
using replay::TracedRequest;

using Recording = EagerIterations::Recording;

template <typename Field>
py::list column(const Recording& recording, Field TracedRequest::* field) {
  py::list values;
  for (const TracedRequest& request : recording.requests) values.append(request.*field);
  return values;
}

std::shared_ptr<Script> make_script(const Recording& recording, const std::vector<std::int64_t>& offsets) {
  TORCH_CHECK(offsets.size() == recording.requests.size(), "lowtide: ", recording.requests.size(),
              " requests were recorded, ", offsets.size(), " offsets are given");
  std::vector<Script::Request> lines;
  for (std::size_t i = 0; i < offsets.size(); ++i) lines.push_back({recording.requests[i].bytes, offsets[i]});
  auto script = std::make_shared<Script>(lines);
  TORCH_CHECK(replay::serves(script, recording.requests), "lowtide: a script that does not serve what was recorded");
  return script;
}

Recording make_recording(const std::vector<std::int64_t>& bytes, const std::vector<std::uint32_t>& begins,
                         const std::vector<std::uint32_t>& ends, const std::vector<bool>& stays,
                         std::int64_t alignment) {
  Recording made;
  made.alignment = alignment;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    made.requests.push_back({bytes[i], begins.at(i), ends.at(i), stays.at(i)});
  }
  return made;
}

}  // namespace

void bind_eager_replay(py::module_& module) {
  py::class_<Script, std::shared_ptr<Script>>(module, "Script")
      .def(py::init(torch::wrap_pybind_function(&make_script)), py::arg("recording"), py::arg("offsets"))
      .def_property_readonly("arena_bytes", &Script::arena_bytes)
      .def("__len__", &Script::size)
      .def_property_readonly("offsets", [](const Script& self) {
        py::list offsets;
        for (std::size_t i = 0; i < self.size(); ++i) offsets.append(self.line(i).offset);
        return offsets;
      });

  py::class_<Recording>(module, "Recording")
      .def(py::init(&make_recording), py::arg("bytes"), py::arg("begins"), py::arg("ends"), py::arg("stays"),
           py::arg("alignment") = Recording::kAlignment)
      .def_property_readonly("bytes", [](const Recording& self) { return column(self, &TracedRequest::bytes); })
      .def_property_readonly("begins", [](const Recording& self) { return column(self, &TracedRequest::begin); })
      .def_property_readonly("ends", [](const Recording& self) { return column(self, &TracedRequest::end); })
      .def_property_readonly("stays", [](const Recording& self) { return column(self, &TracedRequest::stays); })
      .def_readonly("ops", &Recording::ops)
      .def_readonly("alignment", &Recording::alignment)
      .def("actions",
           [](const Recording& self) {
             py::list actions;
             for (const replay::Action& action : replay::actions_of(self.requests)) {
               actions.append(py::make_tuple(action.request, action.releases));
             }
             return actions;
           })
      .def("__len__", [](const Recording& self) { return self.requests.size(); });

  py::class_<EagerIterations::Outcome>(module, "ReplayOutcome")
      .def_property_readonly("hits", [](const EagerIterations::Outcome& self) { return self.tally.hits; })
      .def_property_readonly("outside", [](const EagerIterations::Outcome& self) { return self.tally.outside; })
      .def_property_readonly("misses", [](const EagerIterations::Outcome& self) { return self.tally.misses; })
      .def_property_readonly("departed_at", [](const EagerIterations::Outcome& self) { return self.tally.departed_at; })
      .def_readonly("unplanned", &EagerIterations::Outcome::unplanned)
      .def_readonly("escaped", &EagerIterations::Outcome::escaped)
      .def_readonly("blocked", &EagerIterations::Outcome::blocked);

  py::class_<EagerIterations, std::unique_ptr<EagerIterations, py::nodelete>>(module, "EagerIterations")
      .def("stop", &EagerIterations::stop)
      .def("set_paused", &EagerIterations::set_paused)
      .def("set_arena", torch::wrap_pybind_function(&EagerIterations::set_arena))
      .def(
          "begin",
          [](EagerIterations& self, EagerIterations::Scripts variants, bool smaller, bool record) {
            self.begin(std::move(variants), smaller ? Suits::smaller : Suits::same_size, record);
          },
          py::arg("variants"), py::arg("smaller"), py::arg("record"))
      .def("finish", &EagerIterations::finish)
      .def("take_recording", &EagerIterations::take_recording)
      .def_property_readonly("requests_elsewhere", &EagerIterations::requests_elsewhere)
      .def_property_readonly("blocks_left_behind", &EagerIterations::blocks_left_behind);

  module.def("eager_replay", &EagerReplay::process, py::return_value_policy::reference);
  py::class_<EagerReplay, EagerIterations, std::unique_ptr<EagerReplay, py::nodelete>>(module, "EagerReplay")
      .def("start",
           [](EagerReplay& self) {
             install_allocator();
             return self.start();
           })
      .def("spill_to", torch::wrap_pybind_function(&EagerReplay::spill_to));

  module.def("device_replay", &DeviceReplay::process, py::return_value_policy::reference);
  py::class_<DeviceReplay, EagerIterations, std::unique_ptr<DeviceReplay, py::nodelete>>(module, "DeviceReplay")
      // In one call: no other thread of Python can start a replay in between.
      .def("take_over", torch::wrap_pybind_function([](DeviceReplay& self, const c10::Device& device) {
             EagerReplay::process().stop();
             self.start(device);
           }))
      .def_property_readonly("requests_on_other_streams", &DeviceReplay::requests_on_other_streams)
      .def("leave_out_waits", &DeviceReplay::leave_out_waits);
  module.def(
      "time_allocations",
      [](const Recording& recording, const std::shared_ptr<Script>& script, int rounds) {
        const AllocationTime time = time_allocations(recording.requests, script, rounds);
        return std::make_pair(time.ordinary_nanos, time.replayed_nanos);
      },
      py::arg("recording"), py::arg("script"), py::arg("rounds"));
}

}  // namespace lowtide::torch_runtime
