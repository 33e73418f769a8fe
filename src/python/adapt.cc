#include "adapt.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lowtide/batch_planner.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lowtide::python {
namespace {

using Extents = std::vector<std::uint64_t>;

// Levels can be a few bytes below that of the beginning, where something from before was freed.
Bytes to_level(std::int64_t bytes) {
  return Bytes(bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0);
}

void bind_observation(nb::module_& m) {
  nb::class_<BlockObservation> block(m, "BlockObservation");
  block.def(nb::init<>()).def_rw("dropped", &BlockObservation::dropped);
  const auto level = [&](const char* name, Bytes BlockObservation::* field) {
    block.def_prop_rw(
        name, [field](const BlockObservation& self) { return (self.*field).count(); },
        [field](BlockObservation& self, std::int64_t bytes) { self.*field = to_level(bytes); });
  };
  level("entered", &BlockObservation::entered);
  level("left", &BlockObservation::left);
  level("forward_peak", &BlockObservation::forward_peak);
  level("backward_peak", &BlockObservation::backward_peak);
  level("saved", &BlockObservation::saved);
  level("lingering", &BlockObservation::lingering);
  level("result", &BlockObservation::result);
  level("before_again", &BlockObservation::before_again);
  level("again_peak", &BlockObservation::again_peak);
  level("held_again", &BlockObservation::held_again);
  level("settled_peak", &BlockObservation::settled_peak);
  block.def_prop_rw(
      "time_ns", [](const BlockObservation& self) { return self.time.count(); },
      [](BlockObservation& self, std::uint64_t nanos) { self.time = Nanos(nanos); });
}

void bind_batch_plan(nb::module_& m) {
  nb::class_<BatchPlan>(m, "BatchPlan")
      .def_ro("dropped", &BatchPlan::dropped)
      .def_prop_ro("likely_peak", [](const BatchPlan& self) { return self.likely_peak.count(); })
      .def_prop_ro("safe_peak", [](const BatchPlan& self) { return self.safe_peak.count(); })
      .def_prop_ro("again_ns", [](const BatchPlan& self) { return self.again.count(); })
      .def_ro("known", &BatchPlan::known)
      .def_ro("tested", &BatchPlan::tested)
      .def_ro("extrapolates", &BatchPlan::extrapolates)
      .def_ro("from_cache", &BatchPlan::from_cache);
}

void check_extents(const BatchPlanner& self, const Extents& extents) {
  if (self.estimator().observations() > 0 && extents.size() != self.estimator().extents()) {
    throw nb::value_error("as many extents as the batches before have");
  }
}

void check_known(const BatchPlanner& self, const Extents& extents) {
  if (!self.estimator().knows_something()) throw nb::value_error("nothing was observed yet");
  check_extents(self, extents);
}

void observe(BatchPlanner& self, const Extents& extents, std::vector<BlockObservation> blocks,
             std::vector<std::uint32_t> backward, std::int64_t tail_peak, std::int64_t turn_peak,
             std::int64_t update_peak) {
  if (blocks.size() != self.estimator().blocks() || backward.size() != blocks.size()) {
    throw nb::value_error("as many blocks as the planner has, forward and backward");
  }
  check_extents(self, extents);
  std::vector<bool> passed(blocks.size(), false);
  for (const std::uint32_t block : backward) {
    if (block >= blocks.size() || passed[block]) throw nb::value_error("each block has one backward pass");
    passed[block] = true;
  }
  self.observe({extents, std::move(blocks), std::move(backward), to_level(tail_peak), to_level(turn_peak),
                to_level(update_peak)});
}

}  // namespace

void bind_adapt(nb::module_& m) {
  bind_observation(m);
  bind_batch_plan(m);
  nb::class_<BatchPlanner>(m, "BatchPlanner")
      .def(
          "__init__",
          [](BatchPlanner* self, std::size_t blocks, std::size_t order, std::size_t cached_plans) {
            BatchPlannerOptions options;
            options.estimator.order = order;
            options.cached_plans = cached_plans;
            new (self) BatchPlanner(blocks, options);
          },
          "blocks"_a, nb::kw_only(), "order"_a = 2, "cached_plans"_a = 256)
      .def("observe", observe, "extents"_a, "blocks"_a, "backward"_a, "tail_peak"_a, "turn_peak"_a, "update_peak"_a)
      .def(
          "learn_peak",
          [](BatchPlanner& self, std::int64_t likely, std::int64_t actual) {
            self.learn_peak(to_level(likely), to_level(actual));
          },
          "likely_peak"_a, "actual_peak"_a)
      .def(
          "plan",
          [](BatchPlanner& self, const Extents& extents, std::int64_t room, std::int64_t passing) {
            check_extents(self, extents);
            return self.plan(extents, to_level(room), to_level(passing));
          },
          "extents"_a, "room"_a, "passing"_a = 0)
      .def(
          "least_peak",
          [](const BatchPlanner& self, const Extents& extents) {
            check_known(self, extents);
            return self.least_peak(extents).count();
          },
          "extents"_a)
      .def(
          "likely_peak",
          [](const BatchPlanner& self, const Extents& extents, const std::vector<bool>& dropped, std::int64_t passing) {
            check_known(self, extents);
            if (dropped.size() != self.estimator().blocks()) throw nb::value_error("a choice for each block");
            return self.likely_peak(extents, dropped, to_level(passing)).count();
          },
          "extents"_a, "dropped"_a, "passing"_a = 0)
      .def(
          "likely_blocks",
          [](const BatchPlanner& self, const Extents& extents) {
            check_known(self, extents);
            std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
            for (const BlockNeeds& block : self.estimator().predict(extents).likely.blocks) {
              found.emplace_back(block.freed_forward.count(), block.again.count());
            }
            return found;
          },
          "extents"_a)
      .def_prop_ro("observations", [](const BatchPlanner& self) { return self.estimator().observations(); })
      .def_prop_ro("cached_plans", &BatchPlanner::cached_plans);
}

}  // namespace lowtide::python
