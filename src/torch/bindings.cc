// The Python face of the runtime: lowtide._torch. The front end in python/lowtide is its only caller.
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "allocator.h"
#include "arena.h"
#include "eager_replay_bindings.h"
#include "engine_word.h"
#include "file_tier.h"
#include "homes.h"
#include "internals.h"
#include "loan.h"
#include "op_profile.h"
#include "program.h"
#include "tier_bindings.h"

namespace py = pybind11;

namespace lowtide::torch_runtime {
namespace {

c10::OperatorHandle find_op(const std::string& name, const std::string& overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
}

std::vector<c10::IValue> read_numbers(const py::list& list) {
  std::vector<c10::IValue> numbers;
  numbers.reserve(list.size());
  for (const auto item : list) {
    if (py::isinstance<py::float_>(item)) {
      numbers.emplace_back(item.cast<double>());
    } else {
      numbers.emplace_back(item.cast<std::int64_t>());
    }
  }
  return numbers;
}

// How many of the objects are tensors with the storage of each of these, leaves of autograd or held by Python alone:
// another may be held by who has its address (DLPack).
std::vector<std::size_t> count_tensors(const std::vector<at::Tensor>& tensors, const py::list& objects) {
  auto* tensor_class = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  std::map<const c10::StorageImpl*, std::size_t> counts;
  for (const py::handle object : objects) {
    if (PyType_IsSubtype(Py_TYPE(object.ptr()), tensor_class) == 0) continue;
    const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
    if (!tensor.defined() || !tensor.has_storage()) continue;
    const bool is_leaf = tensor.requires_grad() && tensor.is_leaf();
    if (is_leaf || tensor.use_count() == 1) ++counts[tensor.storage().unsafeGetStorageImpl()];
  }
  std::vector<std::size_t> found;
  found.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) found.push_back(counts[tensor.storage().unsafeGetStorageImpl()]);
  return found;
}

// The lock that autograd holds while it adds to the gradient of a leaf; none if no graph leads there.
struct AddsToGradient : torch::autograd::Node {
  static std::mutex& lock_of(Node& node) { return node.*(&AddsToGradient::mutex_); }
};

// Where only the leaf holds its gradient, and no thread adds to it. An array of NumPy or of another library has the
// gradient's address.
void move_gradients_out(const std::vector<at::Tensor>& leaves) {
  for (const at::Tensor& leaf : leaves) {
    if (!leaf.is_leaf()) continue;
    const auto adds = torch::autograd::impl::try_get_grad_accumulator(leaf);
    std::unique_lock<std::mutex> lock;
    if (adds) {  // who has the lock may be waiting for Python's
      lock = std::unique_lock(AddsToGradient::lock_of(*adds), std::try_to_lock);
      if (!lock) continue;
    }
    const at::Tensor& gradient = leaf.grad();
    if (is_lent(gradient) && is_only_in_one_place(gradient) && !was_shown_as_array(gradient)) move_out(gradient);
  }
}

// The node that adds to its gradient has hooks, of which no attribute of the leaf tells.
bool has_hooked_node(const at::Tensor& leaf) {
  if (!leaf.requires_grad() || !leaf.is_leaf()) return false;
  const auto adds = torch::autograd::impl::try_get_grad_accumulator(leaf);
  return adds && !(adds->pre_hooks().empty() && adds->post_hooks().empty());
}

bool any_has_hooked_node(const std::vector<at::Tensor>& leaves) {
  return std::any_of(leaves.begin(), leaves.end(), has_hooked_node);
}

BufferKind read_kind(const std::string& kind) {
  if (kind == "planned") return BufferKind::planned;
  if (kind == "slot") return BufferKind::slot;
  if (kind == "bound") return BufferKind::bound;
  TORCH_CHECK(kind == "made", "lowtide: unknown kind of buffer: ", kind);
  return BufferKind::made;
}

GuardLevel read_guard_level(const std::string& level) {
  if (level == "off") return GuardLevel::off;
  if (level == "operands") return GuardLevel::operands;
  TORCH_CHECK(level == "everything", "lowtide: unknown level of the memory guard: ", level);
  return GuardLevel::everything;
}

int add_call(Program& program, const std::string& name, const std::string& overload, const py::list& arguments,
             std::vector<int> results, const std::vector<std::pair<std::int64_t, std::int64_t>>& requests,
             std::vector<int> ends, std::vector<int> writes, std::vector<std::pair<int, int>> replaces,
             std::pair<std::int64_t, std::int64_t> workspace, bool grad_mode, bool leaves_unwritten, bool copies,
             int draws_like, const std::vector<std::pair<int, bool>>& delivers, std::vector<int> opens) {
  const c10::OperatorHandle op = find_op(name, overload);
  const auto& schema = op.schema().arguments();
  TORCH_CHECK(arguments.size() == schema.size(), "lowtide: ", name, " takes ", schema.size(), " arguments, ",
              arguments.size(), " were given");
  Program::CallSpec spec;
  for (std::size_t a = 0; a < schema.size(); ++a) spec.arguments.push_back(read_argument(arguments[a], schema[a]));
  spec.results = std::move(results);
  for (const auto& [bytes, offset] : requests) spec.requests.push_back({bytes, offset});
  spec.ends = std::move(ends);
  spec.writes = std::move(writes);
  spec.replaces = std::move(replaces);
  std::tie(spec.workspace_offset, spec.workspace_bytes) = workspace;
  spec.grad_mode = grad_mode;
  spec.leaves_unwritten = leaves_unwritten;
  spec.copies = copies;
  spec.draws_like = draws_like;
  for (const auto& [result, adds] : delivers) spec.delivers.push_back({result, adds});
  spec.opens = std::move(opens);
  return program.add_call(op, std::move(spec));
}

// What `op` takes, as constants.
torch::jit::Stack read_constants(const c10::OperatorHandle& op, const py::list& arguments) {
  const auto& schema = op.schema().arguments();
  TORCH_CHECK(arguments.size() == schema.size(), "lowtide: ", op.schema().name(), " takes ", schema.size(),
              " arguments, ", arguments.size(), " were given");
  torch::jit::Stack stack;
  for (std::size_t a = 0; a < schema.size(); ++a) {
    stack.push_back(read_argument(arguments[a], schema[a]).constant);
  }
  return stack;
}

py::tuple profile(const std::string& name, const std::string& overload, const py::list& arguments, int timed_runs,
                  bool grad_mode, const c10::Device& where) {
  const c10::OperatorHandle op = find_op(name, overload);
  const torch::jit::Stack stack = read_constants(op, arguments);
  OpProfile found;
  {
    const py::gil_scoped_release released;
    found = profile_op(op, stack, timed_runs, grad_mode, where);
  }
  py::list requests;
  for (const ProfiledRequest& r : found.requests) requests.append(py::make_tuple(r.bytes, r.begin, r.end, r.result));
  return py::make_tuple(requests, found.results, found.nanos);
}

py::tuple profile_part(const std::string& name, const std::string& overload, const py::list& arguments, int timed_runs,
                       bool grad_mode, const c10::Device& where,
                       const std::vector<std::tuple<int, at::Tensor, bool>>& delivers) {
  const c10::OperatorHandle op = find_op(name, overload);
  const torch::jit::Stack stack = read_constants(op, arguments);
  std::vector<ProfiledDelivery> deliveries;
  for (const auto& [result, place, adds] : delivers) deliveries.push_back({result, place, adds});
  OpProfile found;
  {
    const py::gil_scoped_release released;
    found = profile_op(op, stack, timed_runs, grad_mode, where, deliveries);
  }
  py::list requests;
  for (const ProfiledRequest& r : found.requests) {
    requests.append(py::make_tuple(r.bytes, r.begin, r.end, r.result, r.delivers));
  }
  return py::make_tuple(requests, found.nanos);
}

Device& device_at(const c10::Device& where) {
  Device* device = find_device(where);
  TORCH_CHECK(device != nullptr, "lowtide: memory on ", where, " is not planned");
  return *device;
}

// Unless a step is running: what lies in the CPU's arena between two steps is what somebody outside holds.
void empty_arena() {
  Arena& arena = Arena::on(cpu_device());
  const std::unique_lock running(arena.running(), std::try_to_lock);
  if (!running) return;
  arena.take_turn();
  const std::int64_t keep = arena.empty_above(end_of_escaped(arena));
  arena_shrunk_to(arena.device().where(), ArenaKind::planned, keep);
}

// What a run calls now and then, if there is anything.
std::function<void()> with_gil(const py::object& look) {
  if (look.is_none()) return {};
  return [&look] {
    const py::gil_scoped_acquire acquired;
    look();
  };
}

class OpenMeter {
 public:
  explicit OpenMeter(const c10::Device& where) { open_meter(&meter_, where); }
  ~OpenMeter() { close(); }
  OpenMeter(const OpenMeter&) = delete;
  OpenMeter& operator=(const OpenMeter&) = delete;
  void close() { close_meter(&meter_); }
  Meter read() const { return read_meter(&meter_); }
  Meter mark() { return mark_meter(&meter_); }
  void limit(std::optional<std::int64_t> bytes) { limit_meter(&meter_, bytes.value_or(Meter::kNoLimit)); }

 private:
  Meter meter_;
};

}  // namespace
}  // namespace lowtide::torch_runtime

PYBIND11_MODULE(_torch, module) {
  using namespace lowtide::torch_runtime;  // NOLINT: the whole file is about it
  module.doc() = "Lowtide's runtime on PyTorch: arena, allocator, executor.";

  bind_eager_replay(module);
  bind_tier(module);
  module.def("install_allocator", &install_allocator);
  module.def(
      "arena_usable_bytes", [](const c10::Device& device) { return Arena::on(device_at(device)).usable_bytes(); },
      py::arg("device") = c10::Device(c10::kCPU));
  module.def(
      "arena_leased_bytes", [](const c10::Device& device) { return Arena::on(device_at(device)).leased_bytes(); },
      py::arg("device") = c10::Device(c10::kCPU));
  module.def("empty_arena", &empty_arena);
  module.def("runtime", [] { return py::capsule(&runtime(), Runtime::kCapsule); });
  module.def("engine_word", torch::wrap_pybind_function([] { return py::bytes(engine_word()); }));
  module.def("call_word", torch::wrap_pybind_function([] { return py::bytes(call_word()); }));
  module.def("profile", torch::wrap_pybind_function(&profile), py::arg("name"), py::arg("overload"),
             py::arg("arguments"), py::arg("timed_runs"), py::arg("grad_mode"),
             py::arg("device") = c10::Device(c10::kCPU));
  module.def("profile_part", torch::wrap_pybind_function(&profile_part), py::arg("name"), py::arg("overload"),
             py::arg("arguments"), py::arg("timed_runs"), py::arg("grad_mode"), py::arg("device"), py::arg("delivers"));
  module.def("autocast_cast", torch::wrap_pybind_function([](const at::Tensor& tensor, at::ScalarType dtype) {
               return at::autocast::cached_cast(dtype, tensor, tensor.device().type());
             }));

  py::class_<SlowTier, std::shared_ptr<SlowTier>>(module, "SlowTier", py::release_gil_before_calling_cpp_dtor());
  module.def(
      "file_tier",
      [](std::shared_ptr<lowtide::tier::TierFile> file) -> std::shared_ptr<SlowTier> {
        return std::make_shared<FileTier>(std::move(file));
      },
      py::arg("file"));
  module.def("host_tier", [](const c10::Device& device) { return device_at(device).host_tier(); }, py::arg("device"));
  module.def(
      "put_away",
      [](const at::Tensor& tensor, const std::shared_ptr<SlowTier>& tier) {
        const py::gil_scoped_release released;
        put_away(tensor, *tier);
      },
      py::arg("tensor"), py::arg("tier"));
  module.def(
      "bring_back",
      [](const at::Tensor& tensor, const std::shared_ptr<SlowTier>& tier) {
        const py::gil_scoped_release released;
        bring_back(tensor, *tier);
      },
      py::arg("tensor"), py::arg("tier"));
  module.def("has_own_memory", &has_own_memory, py::arg("tensor"));
  module.def("was_shown_as_array", &was_shown_as_array, py::arg("tensor"));
  module.def("storage_uses", &storage_uses, py::arg("tensor"));
  module.def("count_tensors", &count_tensors, py::arg("tensors"), py::arg("objects"));
  module.def("move_gradients_out", &move_gradients_out, py::arg("leaves"));
  module.def("any_has_hooked_node", &any_has_hooked_node, py::arg("leaves"));
  module.def("is_away", &is_away, py::arg("tensor"));
  module.def(
      "is_in", [](const at::Tensor& tensor, const std::shared_ptr<SlowTier>& tier) { return is_in(tensor, *tier); },
      py::arg("tensor"), py::arg("tier"));

  py::class_<OpenMeter>(module, "Meter")
      .def(py::init<const c10::Device&>(), py::arg("device") = c10::Device(c10::kCPU))
      .def("close", &OpenMeter::close)
      .def("mark",
           [](OpenMeter& self) {
             const Meter meter = self.mark();
             return std::make_tuple(meter.live_bytes + meter.arena_bytes(), meter.peak_bytes);
           })
      .def("limit", &OpenMeter::limit)
      .def("read", [](const OpenMeter& self) {
        const Meter meter = self.read();
        return std::make_tuple(meter.live_bytes, meter.arena_bytes(), meter.peak_bytes, meter.allocations);
      });

  py::class_<ReplayStats>(module, "ReplayStats")
      .def_readonly("highest_end", &ReplayStats::highest_end)
      .def_readonly("misses", &ReplayStats::misses)
      .def_readonly("unplanned_peak", &ReplayStats::unplanned_peak);

  py::class_<MemoryFault>(module, "MemoryFault")
      .def_property_readonly("kind", [](const MemoryFault& self) { return std::string(self.what()); })
      .def_readonly("buffer", &MemoryFault::buffer)
      .def_readonly("other", &MemoryFault::other)
      .def_readonly("distance", &MemoryFault::distance)
      .def_readonly("first_suspect", &MemoryFault::first_suspect)
      .def_readonly("last_suspect", &MemoryFault::last_suspect);
  module.attr("GUARD_MARGIN") = kGuardMargin;

  // A step of another thread may be running, and want the GIL, while one is dropped.
  py::class_<Program, std::shared_ptr<Program>>(module, "Program", py::release_gil_before_calling_cpp_dtor())
      .def(py::init([](const c10::Device& device, std::int64_t arena_bytes, const std::string& guard) {
             return std::make_shared<Program>(device_at(device), arena_bytes, read_guard_level(guard));
           }),
           py::arg("device"), py::arg("arena_bytes"), py::arg("guard"))
      .def("add_buffer",
           [](Program& self, const std::string& kind, std::int64_t bytes, std::int64_t offset,
              const c10::Device& device) { return self.add_buffer(read_kind(kind), bytes, offset, device_at(device)); })
      .def("add_value",
           [](Program& self, int buffer, at::ScalarType dtype, std::vector<std::int64_t> sizes,
              std::vector<std::int64_t> strides, std::int64_t offset) {
             return self.add_value(buffer, dtype, std::move(sizes), std::move(strides), offset);
           })
      .def("add_call", torch::wrap_pybind_function(&add_call), py::arg("name"), py::arg("overload"),
           py::arg("arguments"), py::arg("results"), py::arg("requests"), py::arg("ends"), py::arg("writes"),
           py::arg("replaces"), py::arg("workspace"), py::arg("grad_mode"), py::arg("leaves_unwritten"),
           py::arg("copies"), py::arg("draws_like"), py::arg("delivers") = std::vector<std::pair<int, bool>>(),
           py::arg("opens") = std::vector<int>())
      .def("add_output", &Program::add_output)
      .def(
          "use_tier",
          [](Program& self, std::shared_ptr<SlowTier> tier, std::int64_t slot_bytes) {
            self.use_tier(std::move(tier), slot_bytes);
          },
          py::arg("tier"), py::arg("slot_bytes"))
      .def(
          "add_transfer",
          [](Program& self, int source, int target, int issue, int wait, bool stores) {
            self.add_transfer({source, target, issue, wait, stores});
          },
          py::arg("source"), py::arg("target"), py::arg("issue"), py::arg("wait"), py::arg("stores"))
      .def("add_home", &Program::add_home, py::arg("buffer"), py::arg("home"))
      .def("add_pause", &Program::add_pause)
      .def("add_turn", &Program::add_turn, py::arg("kept_bytes"))
      .def("finish", [](Program& self, const py::list& numbers) { self.finish(read_numbers(numbers)); })
      .def(
          "bind",
          [](Program& self, int buffer, const py::object& tensor, bool transient) {
            self.bind(buffer, CallerTensor(tensor.ptr()), transient);
          },
          py::arg("buffer"), py::arg("tensor"), py::arg("transient") = false)
      .def("stale_binding", &Program::stale_binding)
      .def("mark_written", &Program::mark_written)
      .def("overlap", &Program::overlap)
      .def("run", torch::wrap_pybind_function([](Program& self, const py::list& numbers, const py::object& look) {
             self.set_numbers(read_numbers(numbers));
             self.take_bound(/*all=*/true);
             const std::function<void()> look_with_gil = with_gil(look);
             const py::gil_scoped_release released;
             return self.run(look_with_gil);
           }),
           py::arg("numbers"), py::arg("look") = py::none())
      .def("run_to_pause", torch::wrap_pybind_function([](Program& self, const py::object& look) {
             self.take_bound(/*all=*/false);
             const std::function<void()> look_with_gil = with_gil(look);
             const py::gil_scoped_release released;
             return self.run_to_pause(look_with_gil);
           }),
           py::arg("look") = py::none())
      .def("claim", &Program::claim)
      .def("unclaim", &Program::unclaim)
      .def_property_readonly("held_outputs", &Program::held_outputs)
      .def_property_readonly("bytes_below", &Program::bytes_below)
      .def_property_readonly("is_under_way", [](const Program& self) { return self.claimed() != Program::Claim::idle; })
      .def("run_to_turn", torch::wrap_pybind_function([](Program& self, const py::object& look) {
             self.take_bound(/*all=*/false);
             const std::function<void()> look_with_gil = with_gil(look);
             const py::gil_scoped_release released;
             return self.run_to_turn(look_with_gil);
           }),
           py::arg("look") = py::none())
      .def_static("claim_turned", &Program::claim_turned, py::arg("token"))
      .def("changed_since_turn", &Program::changed_since_turn)
      .def("run_from_turn", torch::wrap_pybind_function([](Program& self, bool again, const py::object& look) {
             self.take_bound(/*all=*/false);
             const std::function<void()> look_with_gil = with_gil(look);
             const py::gil_scoped_release released;
             return self.run_from_turn(again, look_with_gil);
           }),
           py::arg("again"), py::arg("look") = py::none())
      .def_property_readonly("bytes_put_aside", &Program::bytes_put_aside)
      .def_property_readonly("annex_bytes", &Program::annex_bytes)
      .def("can_go_on", &Program::can_go_on)
      .def("abandon",
           [](Program& self) {
             const py::gil_scoped_release released;
             self.abandon();
           })
      .def("time_calls", &Program::time_calls)
      .def("close",
           [](Program& self) {
             const py::gil_scoped_release released;
             self.close();
           })
      .def_property_readonly("call_nanos", &Program::call_nanos)
      .def_property_readonly("failed_call", &Program::failed_call)
      .def_property_readonly("wrote_bound", &Program::wrote_bound)
      .def_property_readonly("memory_fault", [](const Program& self) { return self.memory_fault(); })
      .def_property_readonly("stats", [](const Program& self) { return self.stats(); })
      .def_property_readonly("missed_calls", &Program::missed_calls)
      .def_property_readonly("escapes", [](const Program& self) {
        std::vector<std::pair<int, std::int64_t>> found;
        for (const Escape& escape : self.escapes()) found.emplace_back(escape.call, escape.bytes);
        return found;
      });
}
