// One call of an operator on the CPU, for the values of a call on the device. It is made when the device's call has
// run, and runs when its stream gets there.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "draws.h"
#include "host_view.h"
#include "rules.h"

namespace emulated_cuda {

class Computation {
 public:
  Computation(const c10::OperatorHandle& op, Rule rule, const torch::jit::Stack& arguments,
              std::optional<DrawState> state);

  // The bytes of the i-th result of the device are to be those of the CPU's.
  void fill(std::size_t i, const c10::IValue& result);

  // What the CPU's kernel returns. Arguments that the operator writes to are written. Either of these runs once.
  torch::jit::Stack results();
  void run();

 private:
  void store(const at::Tensor& from, const at::Tensor& to) const;

  c10::OperatorHandle op_;
  Rule rule_;
  std::optional<DrawState> state_;
  HostViews views_;
  torch::jit::Stack arguments_;  // on the host
  std::vector<std::pair<std::size_t, c10::IValue>> targets_;
};

}  // namespace emulated_cuda
