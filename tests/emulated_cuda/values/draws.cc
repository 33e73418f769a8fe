#include "draws.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <algorithm>

namespace emulated_cuda {
namespace {

// The place of the argument for a generator, or -1.
int generator_argument(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].real_type()->str().find("Generator") != std::string::npos) return static_cast<int>(i);
  }
  return -1;
}

at::CPUGeneratorImpl& default_generator() {
  return *at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
}
void assign(at::CPUGeneratorImpl& to, const at::Generator& from) {
  auto* const other = at::check_generator<at::CPUGeneratorImpl>(from);
  to.set_engine(other->engine());
  to.set_next_float_normal_sample(other->next_float_normal_sample());
  to.set_next_double_normal_sample(other->next_double_normal_sample());
}

}  // namespace

at::Generator generator_for(DrawState state) {
  std::uint64_t mixed = state.seed + 0x9E3779B97F4A7C15 * (state.offset + 1);  // splitmix64
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return at::detail::createCPUGenerator(mixed ^ (mixed >> 31));
}

std::optional<DrawState> draw_state(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                                    c10::Device device) {
  const auto& tags = op.getTags();
  const int place = generator_argument(op);
  if (place < 0 && std::find(tags.begin(), tags.end(), at::Tag::nondeterministic_seeded) == tags.end())
    return std::nullopt;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  if (place >= 0 && arguments[static_cast<std::size_t>(place)].isGenerator()) {
    generator = arguments[static_cast<std::size_t>(place)].toGenerator();
  }
  if (generator.device().type() != c10::kCUDA) return std::nullopt;
  const std::lock_guard lock(generator.mutex());
  return DrawState{generator.current_seed(), generator.get_offset()};
}

Drawing::Drawing(const c10::OperatorHandle& op, std::optional<DrawState> state, torch::jit::Stack& arguments) {
  if (!state) return;
  const int place = generator_argument(op);
  if (place >= 0) {
    arguments[static_cast<std::size_t>(place)] = generator_for(*state);
    return;
  }
  default_before_ = at::detail::getDefaultCPUGenerator().clone();
  assign(default_generator(), generator_for(*state));
}
Drawing::~Drawing() {
  if (default_before_.defined()) assign(default_generator(), default_before_);
}

}  // namespace emulated_cuda
