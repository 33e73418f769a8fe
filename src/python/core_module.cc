// lowtide._core: the C++ core for Python. Ids are plain ints here; python/lowtide/_core.pyi documents and types every
// name.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <future>
#include <mutex>
#include <stop_token>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "adapt.h"
#include "eager.h"
#include "io/explanation_json.h"
#include "lowtide/budget.h"
#include "lowtide/explain.h"
#include "lowtide/files.h"
#include "lowtide/fingerprint.h"
#include "lowtide/graph.h"
#include "lowtide/layout.h"
#include "lowtide/lifetimes.h"
#include "lowtide/ops.h"
#include "lowtide/order.h"
#include "lowtide/plan.h"
#include "lowtide/published.h"
#include "lowtide/recompute.h"
#include "lowtide/summary.h"
#include "lowtide/verify.h"
#include "order/algorithms.h"
#include "packing.h"
#include "plan/given_parts.h"
#include "plan/items.h"
#include "plan/traded.h"
#include "published/magis/magis.h"
#include "published/magis/walk.h"
#include "published/model/model_joint.h"
#include "published/model/model_program.h"
#include "published/roam/roam_layout.h"
#include "raise.h"
#include "swap/joint_bound.h"
#include "trade/trade_bound.h"
#include "trade/trades.h"
#include "watch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lowtide::python {
namespace {

using Index = std::uint32_t;

template <typename IdType>
IdType checked(Index index, std::size_t count, const char* kind) {
  if (index >= count) {
    throw nb::index_error((std::string(kind) + " " + std::to_string(index) + " of " + std::to_string(count)).c_str());
  }
  return IdType(index);
}

template <typename IdType>
std::vector<IdType> to_ids(const std::vector<Index>& indices) {
  return std::vector<IdType>(indices.begin(), indices.end());
}

void bind_builder(nb::module_& m) {
  nb::class_<GraphBuilder>(m, "GraphBuilder")
      .def(nb::init<>())
      .def(
          "buffer",
          [](GraphBuilder& self, std::uint64_t size, bool resident, bool initial, std::string_view role,
             std::string_view name) {
            const std::optional<Role> found = find_role(role);
            if (!found) throw nb::value_error(("there is no role '" + std::string(role) + "'").c_str());
            return take(self.add_buffer({.size = Bytes(size),
                                         .residence = resident ? Residence::resident : Residence::planned,
                                         .role = *found,
                                         .name = name,
                                         .initial = initial}))
                .value();
          },
          "size"_a, nb::kw_only(), "resident"_a, "initial"_a, "role"_a, "name"_a)
      .def(
          "value",
          [](GraphBuilder& self, Index buffer, std::string_view dtype, const std::vector<std::int64_t>& shape) {
            return take(self.add_value(BufferId(buffer), dtype, shape)).value();
          },
          "buffer"_a, "dtype"_a, "shape"_a)
      .def(
          "op",
          [](GraphBuilder& self, std::string_view name, const std::vector<Index>& reads,
             const std::vector<Index>& writes, std::uint64_t workspace, std::uint64_t time_ns, std::uint32_t stream,
             bool random, bool mutating, bool collective, bool must_not_recompute, bool may_skip_updates, bool backward,
             std::string_view source, std::string_view module, std::uint32_t region) {
            return take(self.add_op(
                            {.name = name,
                             .reads = to_ids<ValueId>(reads),
                             .writes = to_ids<BufferId>(writes),
                             .workspace = Bytes(workspace),
                             .cost = Nanos(time_ns),
                             .stream = stream,
                             .flags = {random, mutating, collective, must_not_recompute, may_skip_updates, backward},
                             .source = source,
                             .module = module,
                             .region = region}))
                .value();
          },
          "name"_a, "reads"_a, "writes"_a, nb::kw_only(), "workspace"_a = 0, "time_ns"_a = 0, "stream"_a = 0,
          "random"_a = false, "mutating"_a = false, "collective"_a = false, "must_not_recompute"_a = false,
          "may_skip_updates"_a = false, "backward"_a = false, "source"_a = "", "module"_a = "", "region"_a = 0)
      .def(
          "order",
          [](GraphBuilder& self, Index before, Index after) { take(self.add_edge(OpId(before), OpId(after))); },
          "before"_a, "after"_a)
      .def(
          "reuse",
          [](GraphBuilder& self, Index op, Index source, Index result) {
            take(self.add_reuse(OpId(op), BufferId(source), BufferId(result)));
          },
          "op"_a, "source"_a, "result"_a)
      .def(
          "axis",
          [](GraphBuilder& self, Index op, const std::vector<std::uint64_t>& reads,
             const std::vector<std::uint64_t>& writes,
             const std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, bool>>& counts) {
            AxisSpec spec{.reads = {reads.begin(), reads.end()}, .writes = {writes.begin(), writes.end()}};
            for (const auto& [count, workspace, time_ns, exact] : counts) {
              spec.counts.push_back({count, Bytes(workspace), Nanos(time_ns), exact});
            }
            take(self.add_axis(OpId(op), spec));
          },
          "op"_a, "reads"_a, "writes"_a, "counts"_a)
      .def(
          "keep", [](GraphBuilder& self, Index buffer) { take(self.keep(BufferId(buffer))); }, "buffer"_a)
      .def("build", [](GraphBuilder& self) { return take(std::move(self).build()); });
}

// The core works while other threads of Python do.
template <typename Function>
auto unlocked(Function function) {
  const nb::gil_scoped_release released;
  return function();
}

std::uint64_t program_peak(const Graph& graph) {
  return take(lifetimes(graph.without_reuses(), first_to_last(graph.num_ops()))).peak.count();
}

template <typename Id>
std::vector<Index> to_indices(const std::vector<Id>& ids) {
  std::vector<Index> indices(ids.size());
  std::ranges::transform(ids, indices.begin(), &Id::value);
  return indices;
}

using PeakAndArena = std::pair<std::uint64_t, std::uint64_t>;

// Of the order and the layout of ROAM.
PeakAndArena measure_roam(const Graph& graph, std::uint64_t steps) {
  Work work(steps);
  const RoamPlan made = take(unlocked([&] { return roam_plan(graph, {}, work); }));
  return {take(lifetimes(graph.without_reuses(), made.order.order)).peak.count(), made.layout.arena.count()};
}

// Of MODeL's program: "single" and "multi" for the order, one op a step or several, with our own layout of it; "joint"
// for order and layout.
PeakAndArena measure_model(const Graph& graph, std::uint64_t steps, std::uint64_t seconds, std::string_view program) {
  const Graph plain = graph.without_reuses();
  Work work(steps, Work::Clock::now() + std::chrono::seconds(seconds));
  if (program == "joint") {
    const JointAnswer joint = take(unlocked([&] { return model_joint(plain, StepWidth::multi, work); }));
    return {take(lifetimes(plain, joint.order)).peak.count(), joint.layout.arena.count()};
  }
  if (program != "single" && program != "multi") throw nb::value_error("expected single, multi or joint");
  const StepWidth width = program == "single" ? StepWidth::single : StepWidth::multi;
  const ProvenOrder made = take(unlocked([&] { return model_order(to_tasks(plain), width, work); }));
  const Lifetimes lives = take(lifetimes(plain, made.order));
  const NamedLayout named = take(unlocked([&] { return lay_out(items_of(plain, made.order, lives)); }));
  return {lives.peak.count(), named.layout.arena.count()};
}

Result<BoundedOrder> best_order_of(const Graph& graph) {
  Work work(kOrderSteps);
  return find_order("best")->run(graph, work);
}

using CostAndPeak = std::pair<std::int64_t, std::int64_t>;

std::vector<CostAndPeak> recompute_trades(const Graph& graph, std::string_view algorithm) {
  const std::vector<TradedOrder> trades = take(unlocked([&]() -> Result<std::vector<TradedOrder>> {
    const Result<BoundedOrder> best = best_order_of(graph);
    if (!best.ok()) return best.error();
    return all_trades(graph, best->order, {.recompute = std::string(algorithm), .others = published()});
  }));
  std::vector<CostAndPeak> points;
  for (const TradedOrder& trade : trades) points.emplace_back(trade.cost, trade.peak);
  return points;
}

std::vector<std::int64_t> recompute_bounds(const Graph& graph, const std::vector<std::int64_t>& costs) {
  return take(unlocked([&]() -> Result<std::vector<std::int64_t>> {
    const Result<BoundedOrder> best = best_order_of(graph);
    if (!best.ok()) return best.error();
    Work work(trade_steps(graph.num_ops()));
    const TradeBound bound(graph, to_reruns(graph, best->order), work);
    std::vector<std::int64_t> peaks;
    for (const std::int64_t cost : costs) peaks.push_back(bound.least_peak(cost));
    return peaks;
  }));
}

std::vector<std::uint64_t> joint_bounds(const Graph& graph, const Swap& swap,
                                        const std::vector<std::uint64_t>& memories) {
  return take(unlocked([&]() -> Result<std::vector<std::uint64_t>> {
    const Result<BoundedOrder> best = best_order_of(graph);
    if (!best.ok()) return best.error();
    JointBound bound(graph, to_reruns(graph, best->order), swap);
    std::vector<std::uint64_t> times;
    for (const std::uint64_t memory : memories) {
      Work work(trade_steps(graph.num_ops()));
      times.push_back(bound.least_time(Bytes(memory), work).count());
    }
    return times;
  }));
}

// A pipe may let us wait for its writer: a signal handler that raises, as that of Ctrl-C does, ends that.
template <typename Load>
auto load_from(const std::filesystem::path& path, Load load) {
  while (true) {
    auto loaded = unlocked([&] { return load(path); });
    if (loaded.ok() || loaded.error().system_error != EINTR) return loaded;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

// By axis: the periods of reads and of writes, and the counts as GraphBuilder.axis takes them.
using AxisTuple = std::tuple<std::vector<std::uint64_t>, std::vector<std::uint64_t>,
                             std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, bool>>>;
std::vector<AxisTuple> axes_of(const Graph& graph, Index op) {
  const OpId id = checked<OpId>(op, graph.num_ops(), "op");
  std::vector<AxisTuple> axes(graph.num_axes(id));
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Axis axis = graph.axis(id, i);
    auto& [reads, writes, counts] = axes[i];
    for (const Bytes period : axis.reads) reads.push_back(period.count());
    for (const Bytes period : axis.writes) writes.push_back(period.count());
    for (const PartCount& parts : axis.counts) {
      counts.emplace_back(parts.count, parts.workspace.count(), parts.cost.count(), parts.exact);
    }
  }
  return axes;
}

void bind_graph(nb::module_& m) {
  const auto op = [](const Graph& graph, Index i) { return graph.op(checked<OpId>(i, graph.num_ops(), "op")); };
  const auto buffer = [](const Graph& graph, Index i) {
    return graph.buffer(checked<BufferId>(i, graph.num_buffers(), "buffer"));
  };
  nb::class_<Graph>(m, "Graph")
      .def_prop_ro("num_ops", &Graph::num_ops)
      .def_prop_ro("num_buffers", &Graph::num_buffers)
      .def_prop_ro("num_values", &Graph::num_values)
      .def_prop_ro("num_versions", &Graph::num_versions)
      .def_prop_ro("resident_bytes", [](const Graph& self) { return self.resident_bytes().count(); })
      .def_prop_ro("program_peak_bytes", program_peak)
      .def_prop_ro("eager_bytes", [](const Graph& graph) { return take(eager_bytes(graph)).count(); })
      .def_prop_ro("has_axes", [](const Graph& self) { return self.has_axes(); })
      .def_prop_ro("operand_bound_bytes", [](const Graph& self) { return operand_bound(self).count(); })
      .def_prop_ro("fingerprint", [](const Graph& self) { return fingerprint_text(fingerprint(self)); })
      .def("summary", [](const Graph& self) { return summary(self); })
      .def(
          "save",
          [](const Graph& self, const std::filesystem::path& path) {
            take(unlocked([&] { return save_graph(self, path); }));
          },
          "path"_a)
      .def_static(
          "load", [](const std::filesystem::path& path) { return take(load_from(path, load_graph)); }, "path"_a)
      .def(
          "op_name", [op](const Graph& self, Index i) { return op(self, i).name; }, "op"_a)
      .def(
          "op_source", [op](const Graph& self, Index i) { return op(self, i).source; }, "op"_a)
      .def(
          "op_module", [op](const Graph& self, Index i) { return op(self, i).module; }, "op"_a)
      .def(
          "buffer_name", [buffer](const Graph& self, Index i) { return buffer(self, i).name; }, "buffer"_a)
      .def(
          "buffer_size", [buffer](const Graph& self, Index i) { return buffer(self, i).size.count(); }, "buffer"_a)
      .def("axes", axes_of, "op"_a)
      .def("resident_buffers", [](const Graph& self) {
        std::vector<Index> found;
        for (BufferId id(0); id.index() < self.num_buffers(); id = id.next()) {
          if (!self.buffer(id).planned()) found.push_back(static_cast<Index>(id.index()));
        }
        return found;
      });
}

// What Python holds: a plan, and whether verify() has accepted it.
struct HeldPlan : Plan {
  bool verified = false;
};

void save_held_plan(const HeldPlan& plan, const std::filesystem::path& path) {
  if (!plan.verified) {
    raise(
        {ErrorCode::unverified_plan, "this plan was loaded and is not yet verified; lowtide.verify(graph, plan) first"},
        "InvalidPlanError");
  }
  take(unlocked([&] { return save_verified_plan(plan, path); }));
}

// plan() gives buffer i the block i.
const Block& block_of(const Plan& plan, Index buffer) {
  return plan.blocks[checked<BlockId>(buffer, plan.blocks.size(), "buffer").index()];
}

std::vector<std::int64_t> by_block(const Plan& plan, std::int64_t (*field)(const Block&)) {
  std::vector<std::int64_t> fields(plan.blocks.size());
  std::ranges::transform(plan.blocks, fields.begin(), field);
  return fields;
}

void bind_plan(nb::module_& m) {
  nb::class_<HeldPlan>(m, "Plan")
      .def_prop_ro("peak_bytes", [](const HeldPlan& self) { return self.peak.count(); })
      .def_prop_ro("alignment_bytes", [](const HeldPlan& self) { return self.alignment.count(); })
      .def_prop_ro("arena_bytes", [](const HeldPlan& self) { return self.arena.count(); })
      .def_prop_ro("resident_bytes", [](const HeldPlan& self) { return self.resident.count(); })
      .def_prop_ro("bound_bytes", [](const HeldPlan& self) { return self.bound.count(); })
      .def_prop_ro("gap", [](const HeldPlan& self) { return self.gap(); })
      .def_prop_ro("fragmentation", [](const HeldPlan& self) { return self.fragmentation(); })
      .def_prop_ro("time_ns", [](const HeldPlan& self) { return self.time.count(); })
      .def_prop_ro("order", [](const HeldPlan& self) { return to_indices(self.order); })
      .def("summary", [](const HeldPlan& self) { return summary(self); })
      .def("save", save_held_plan, "path"_a)
      .def_static(
          "load",
          [](const std::filesystem::path& path) {
            return HeldPlan{take(load_from(path, load_plan), "InvalidPlanError")};
          },
          "path"_a)
      .def(
          "buffer_offset",
          [](const HeldPlan& self, Index buffer) -> std::optional<std::uint64_t> {
            const std::optional<Bytes> offset = block_of(self, buffer).offset;
            return offset ? std::optional(offset->count()) : std::nullopt;
          },
          "buffer"_a)
      .def(
          "buffer_life",
          [](const HeldPlan& self, Index buffer) {
            const Block& block = block_of(self, buffer);
            return std::pair(block.begin.value(), block.end.value());
          },
          "buffer"_a)
      .def(
          "workspace_offset",
          [](const HeldPlan& self, Index step) {
            return self.workspaces[checked<StepIndex>(step, self.workspaces.size(), "step").index()].count();
          },
          "step"_a)
      .def("offsets",
           [](const HeldPlan& self) {
             return by_block(self, [](const Block& block) {
               return block.offset ? static_cast<std::int64_t>(block.offset->count()) : -1;
             });
           })
      .def("begins",
           [](const HeldPlan& self) {
             return by_block(self, [](const Block& block) { return std::int64_t{block.begin.value()}; });
           })
      .def("ends",
           [](const HeldPlan& self) {
             return by_block(self, [](const Block& block) { return std::int64_t{block.end.value()}; });
           })
      .def("block_tiers",
           [](const HeldPlan& self) {
             return by_block(self, [](const Block& block) { return std::int64_t{block.tier}; });
           })
      .def_prop_ro("tier_arena_bytes",
                   [](const HeldPlan& self) {
                     std::vector<std::uint64_t> bytes;
                     for (const Tier& tier : self.tiers) bytes.push_back(tier.arena.count());
                     return bytes;
                   })
      .def_prop_ro("tier_resident_bytes",
                   [](const HeldPlan& self) {
                     std::vector<std::uint64_t> bytes;
                     for (const Tier& tier : self.tiers) bytes.push_back(tier.resident.count());
                     return bytes;
                   })
      .def("transfers",
           [](const HeldPlan& self) {
             std::vector<std::array<Index, 4>> all;
             for (const Transfer& transfer : self.transfers) {
               all.push_back(
                   {transfer.from.value(), transfer.to.value(), transfer.issue.value(), transfer.wait.value()});
             }
             return all;
           })
      .def("step_parts",
           [](const HeldPlan& self) {
             std::vector<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> parts;
             for (const auto& [axis, part] : self.parts) parts.emplace_back(axis, part.index, part.count);
             return parts;
           })
      .def("block_parts",
           [](const HeldPlan& self) {
             std::vector<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>> parts;
             for (const Block& block : self.blocks) {
               parts.emplace_back(block.period.count(), block.part.index, block.part.count);
             }
             return parts;
           })
      .def("block_buffers",
           [](const HeldPlan& self) {
             return by_block(self, [](const Block& block) { return std::int64_t{block.buffer.value()}; });
           })
      .def(
          "is_exact", [](const HeldPlan& self, const Graph& graph) { return is_exact(graph, self); }, "graph"_a)
      .def(
          "step_blocks",
          [](const HeldPlan& self, Index step) {
            const std::size_t index = checked<StepIndex>(step, self.order.size(), "step").index();
            std::vector<Index> blocks;
            for (const Lists<BlockId>* operands : {&self.reads, &self.writes}) {
              if (index >= operands->size()) continue;
              for (const BlockId block : (*operands)[index]) blocks.push_back(block.value());
            }
            return blocks;
          },
          "step"_a)
      .def("workspace_offsets", [](const HeldPlan& self) {
        std::vector<std::uint64_t> offsets(self.workspaces.size());
        std::ranges::transform(self.workspaces, offsets.begin(), &Bytes::count);
        return offsets;
      });
}

void bind_swap(nb::module_& m) {
  m.def("kept_between_steps", [](const Graph& graph) { return to_indices(kept_between_steps(graph)); }, "graph"_a);
  nb::class_<Swap>(m, "Swap").def(
      "__init__",
      [](Swap* self, std::string name, std::uint64_t store_rate, std::uint64_t load_rate, std::uint64_t latency_ns,
         bool duplex, const std::vector<Index>& may_leave, std::uint64_t least_bytes) {
        new (self) Swap{.name = std::move(name),
                        .link = {Bytes(store_rate), Bytes(load_rate), Nanos(latency_ns), duplex},
                        .may_leave = to_ids<BufferId>(may_leave),
                        .least = Bytes(least_bytes)};
      },
      "name"_a, nb::kw_only(), "store_rate"_a, "load_rate"_a, "latency_ns"_a = 0, "duplex"_a = false,
      "may_leave"_a = std::vector<Index>(), "least_bytes"_a = Swap{}.least.count());
}

using MemoryBudget = std::variant<std::uint64_t, double>;  // bytes, or a share

// Plans on another thread. On this one `watching` is called every 50 ms with what has been found so far; planning stops
// where it raises.
Result<Plan> plan_watched(const Graph& graph, PlanOptions options, const nb::callable& watching) {
  constexpr std::chrono::milliseconds kTick(50);
  std::mutex mutex;
  std::optional<FoundSoFar> latest;
  options.on_progress = [&](const FoundSoFar& found) {
    const std::scoped_lock lock(mutex);
    latest = found;
  };
  std::stop_source stop;
  options.stop = stop.get_token();
  std::future<Result<Plan>> planned = std::async(std::launch::async, [&] { return plan(graph, options); });
  try {
    while (unlocked([&] { return planned.wait_for(kTick); }) != std::future_status::ready) {
      const std::optional<FoundSoFar> found = unlocked([&] {
        const std::scoped_lock lock(mutex);
        return latest;
      });
      watching(found ? summary(*found) : "");
    }
  } catch (...) {
    stop.request_stop();
    unlocked([&] { planned.wait(); });
    throw;
  }
  return planned.get();
}

Parts to_parts(std::string_view name) {
  if (name == "none") return Parts::none;
  if (name == "exact") return Parts::exact;
  if (name == "any") return Parts::any;
  throw nb::value_error(("expected parts to be 'none', 'exact' or 'any', got '" + std::string(name) + "'").c_str());
}

HeldPlan make_plan(const Graph& graph, std::string order, std::string layout, bool reuse, std::string recompute,
                   std::optional<MemoryBudget> memory_budget, std::optional<std::uint64_t> latency_budget_ns,
                   std::optional<Swap> swap, std::string_view parts, std::uint64_t alignment, double effort,
                   std::size_t threads, std::optional<double> time_limit, std::optional<nb::callable> watching) {
  PlanOptions options{.order = std::move(order),
                      .layout = std::move(layout),
                      .reuse = reuse,
                      .recompute = std::move(recompute),
                      .parts = to_parts(parts),
                      .others = published(),
                      .swap = std::move(swap),
                      .alignment = Bytes(alignment),
                      .effort = effort,
                      .threads = threads};
  if (time_limit) options.time_limit = std::chrono::milliseconds(static_cast<std::int64_t>(*time_limit * 1000));
  if (memory_budget) {
    const auto* bytes = std::get_if<std::uint64_t>(&*memory_budget);
    options.memory_budget = bytes ? Budget(Bytes(*bytes)) : Budget(Share{std::get<double>(*memory_budget)});
  }
  if (latency_budget_ns) options.latency_budget = Nanos(*latency_budget_ns);
  if (watching) return {take(plan_watched(graph, std::move(options), *watching)), true};
  return {take(unlocked([&] { return plan(graph, options); })), true};
}

// Ops with their axes that run in parts together, and in how many.
using GivenSplit = std::pair<std::vector<std::pair<Index, Index>>, Index>;

HeldPlan make_plan_given_parts(const Graph& graph, const std::vector<GivenSplit>& splits, std::string recompute,
                               std::optional<std::uint64_t> memory_bytes,
                               std::optional<std::uint64_t> latency_budget_ns) {
  Splitting splitting{first_to_last(graph.num_ops()), {}};
  for (const auto& [ops, count] : splits) {
    Split& split = splitting.splits.emplace_back(Split{{}, count});
    for (const auto& [op, axis] : ops) split.ops.push_back({OpId(op), axis});
  }
  PlanOptions options{.recompute = std::move(recompute), .others = published()};
  if (memory_bytes) options.memory_budget = Bytes(*memory_bytes);
  if (latency_budget_ns) options.latency_budget = Nanos(*latency_budget_ns);
  return {take(unlocked([&] { return plan_given_parts(graph, splitting, std::move(options)); })), true};
}

// The plan; peak and time as the search has them; how many states it took up, made, and followed.
using MagisPlan = std::tuple<HeldPlan, std::int64_t, std::int64_t, std::uint64_t, std::uint64_t, std::uint64_t>;

MagisPlan magis_plan(const Graph& graph, std::optional<std::uint64_t> memory_bytes,
                     std::optional<std::uint64_t> latency_ns, bool run_again, bool split, std::size_t levels,
                     bool hot_spots_only, bool reorders, double seconds, std::size_t threads) {
  MagisOptions options{
      .rules = {.run_again = run_again, .split = split, .levels = levels, .hot_spots_only = hot_spots_only},
      .reorders = reorders,
      .time_limit = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)),
      .threads = threads};
  if (memory_bytes) options.memory = Bytes(*memory_bytes);
  if (latency_ns) options.latency = Nanos(*latency_ns);
  MagisAnswer found = take(unlocked([&] { return magis(graph, options); }));
  return {HeldPlan{std::move(found.plan), true},
          found.figures.peak,
          found.figures.time,
          found.counts.popped,
          found.counts.made,
          found.counts.distinct};
}

// Of each state: its peak, that of a full search of orders and that of one in which parts may mix; the seconds for the
// first two.
using WalkedRow = std::tuple<std::int64_t, std::int64_t, std::int64_t, double, double>;

std::vector<WalkedRow> magis_walk(const Graph& graph, std::size_t changes, std::size_t per_start, std::uint64_t seed) {
  std::vector<WalkedRow> rows;
  for (const WalkedState& state :
       take(unlocked([&] { return walk_states(graph, changes, per_start, seed, RuleOptions()); }))) {
    rows.emplace_back(state.peak, state.full_peak, state.free_peak, state.seconds, state.full_seconds);
  }
  return rows;
}

MemoryBudget parse_memory_budget(std::string_view text) {
  const Budget budget = take(parse_budget(text));
  if (const auto* bytes = std::get_if<Bytes>(&budget)) return bytes->count();
  return std::get<Share>(budget).of_whole;
}

void check_plan(const Graph& graph, HeldPlan& plan) {
  take(unlocked([&] { return verify(graph, plan); }));
  plan.verified = true;
}

// The explanation in words and as JSON.
std::pair<std::string, std::string> explained(const Graph& graph, const HeldPlan* plan, std::size_t top,
                                              std::uint64_t swap_per_second) {
  const ExplainOptions options{.holders = top, .swap_per_second = Bytes(swap_per_second)};
  const Explanation told =
      take(unlocked([&] { return plan == nullptr ? explain(graph, options) : explain(graph, *plan, options); }));
  JsonObject json;
  add_fields(json, told);
  return {summary(told), json.text()};
}

// Ours, and those that were published.
template <typename Algorithm>
std::vector<std::pair<std::string_view, std::string_view>> listed(std::span<const Algorithm> ours,
                                                                  const std::vector<Algorithm>& others) {
  std::vector<std::pair<std::string_view, std::string_view>> names;
  for (const std::span<const Algorithm> algorithms : {ours, std::span<const Algorithm>(others)}) {
    for (const Algorithm& algorithm : algorithms) names.emplace_back(algorithm.name, algorithm.description);
  }
  return names;
}

std::vector<Index> positions(std::span<const std::uint32_t> arguments) {
  return {arguments.begin(), arguments.end()};
}

// One row for each operator; of one that is not in the table, its schema is the whole truth.
void bind_ops(nb::module_& m) {
  nb::class_<OpFacts>(m, "OpRow")
      .def_ro("name", &OpFacts::name)
      .def_prop_ro("hidden_writes", [](const OpFacts& row) { return positions(row.hidden_writes.arguments); })
      .def_prop_ro("hidden_writes_condition", [](const OpFacts& row) { return row.hidden_writes.condition; })
      .def_prop_ro("hidden_writes_are_optional", [](const OpFacts& row) { return row.hidden_writes.optional; })
      .def_ro("runtime_sized_result", &OpFacts::runtime_sized_result)
      .def_ro("sees_grad_mode", &OpFacts::sees_grad_mode)
      .def_ro("leaves_results_unwritten", &OpFacts::leaves_results_unwritten)
      .def_ro("moves_no_bytes", &OpFacts::moves_no_bytes)
      .def_ro("reads_what_it_picks", &OpFacts::reads_what_it_picks)
      .def_ro("numbers_decide_shape", &OpFacts::numbers_decide_shape)
      .def_prop_ro("result_over", [](const OpFacts& row) { return positions(row.result_over); })
      .def_ro("axes", &OpFacts::axes);
  m.def(
      "op_row", [](std::string_view name) { return op_facts(name).value_or(OpFacts{.name = {}, .hidden_writes = {}}); },
      "name"_a);
  m.def("op_rows", [] { return std::vector<OpFacts>(known_ops().begin(), known_ops().end()); });
}

}  // namespace

NB_MODULE(_core, m) {
  // What a thread of the user's or a graph of PyTorch's holds to the very end is no fault of ours. The tests turn
  // warnings on.
  nb::set_leak_warnings(false);
  m.def("set_leak_warnings", [](bool warn) { nb::set_leak_warnings(warn); }, "warn"_a);
  bind_builder(m);
  bind_graph(m);
  bind_plan(m);
  bind_swap(m);
  bind_watch(m);
  bind_eager(m);
  bind_adapt(m);
  bind_packing(m);
  bind_ops(m);
  m.attr("ALIGNMENT") = kAlignment.count();
  m.def("plan", make_plan, "graph"_a, nb::kw_only(), "order"_a = "best", "layout"_a = "auto", "reuse"_a = true,
        "recompute"_a = "auto", "memory_budget"_a = nb::none(), "latency_budget_ns"_a = nb::none(),
        "swap"_a = nb::none(), "parts"_a = "exact", "alignment"_a = kAlignment.count(), "effort"_a = 1.0,
        "threads"_a = 1, "time_limit"_a = nb::none(), "watching"_a = nb::none());
  m.def("plan_given_parts", make_plan_given_parts, "graph"_a, "splits"_a, nb::kw_only(), "recompute"_a = "none",
        "memory_bytes"_a = nb::none(), "latency_budget_ns"_a = nb::none());
  m.def("verify", check_plan, "graph"_a, "plan"_a);
  m.def("explain", explained, "graph"_a, "plan"_a.none(), nb::kw_only(), "top"_a, "swap_per_second"_a);
  m.def("parse_bytes", [](std::string_view text) { return take(parse_bytes(text)).count(); }, "text"_a);
  m.def("parse_rate", [](std::string_view text) { return take(parse_rate(text)).count(); }, "text"_a);
  m.def("parse_duration_ns", [](std::string_view text) { return take(parse_duration(text)).count(); }, "text"_a);
  m.def("parse_budget", &parse_memory_budget, "text"_a);
  m.def("parse_time_budget_ns", [](std::string_view text) { return take(parse_time_budget(text)).count(); }, "text"_a);
  m.def("format_bytes", [](std::uint64_t bytes) { return format_bytes(Bytes(bytes)); }, "count"_a);
  m.def("roam_memory", measure_roam, "graph"_a, "steps"_a = 4'000'000'000);
  m.def("magis_plan", magis_plan, "graph"_a, nb::kw_only(), "memory_bytes"_a = nb::none(), "latency_ns"_a = nb::none(),
        "run_again"_a = true, "split"_a = true, "levels"_a = 4, "hot_spots_only"_a = true, "reorders"_a = false,
        "seconds"_a = 180.0, "threads"_a = 1);
  m.def("magis_walk", magis_walk, "graph"_a, "changes"_a, "per_start"_a, "seed"_a);
  m.def("model_memory", measure_model, "graph"_a, "steps"_a, "seconds"_a, "program"_a = "single");
  m.def("recompute_trades", recompute_trades, "graph"_a, "algorithm"_a);
  m.def("recompute_bounds", recompute_bounds, "graph"_a, "costs"_a);
  m.def("joint_bounds", joint_bounds, "graph"_a, "swap"_a, "memory_bytes"_a);
  m.def("order_algorithms", [] { return listed(order_algorithms(), published().orders); });
  m.def("layout_algorithms", [] { return listed(layout_algorithms(), published().layouts); });
  m.def("recompute_algorithms", [] { return listed(recompute_algorithms(), published().recomputes); });
}

}  // namespace lowtide::python
