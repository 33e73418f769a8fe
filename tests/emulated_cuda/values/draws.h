// Random numbers of the device: a pure function of the CUDA generator's seed and of its offset when the operator began.
// CUDA's own code advances the offset. So the same state gives the same numbers again, as on a GPU; they are neither
// the numbers of a GPU nor those of the CPU with the same seed.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>

namespace emulated_cuda {

struct DrawState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

// The CPU's generator for this state.
at::Generator generator_for(DrawState state);

// The state that an operator draws from, if it draws. To be asked before it runs.
std::optional<DrawState> draw_state(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                                    c10::Device device);

// While this exists, the operator with these arguments draws from that state: through its argument for a generator, or
// through the CPU's default one, which is put back at the end.
class Drawing {
 public:
  Drawing(const c10::OperatorHandle& op, std::optional<DrawState> state, torch::jit::Stack& arguments);
  ~Drawing();
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

 private:
  at::Generator default_before_;
};

}  // namespace emulated_cuda
