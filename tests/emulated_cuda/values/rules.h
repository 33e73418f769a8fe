// How each operator with a kernel for CUDA gets its values.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace emulated_cuda {

enum class Rule {
  // CUDA's kernel as it is: views, memory without values, and operators that are made of others.
  as_it_is,
  // CUDA's kernel for what it allocates, then the CPU's for the values.
  computed,
  // As computed, in float32: the CPU keeps the statistics of low precision in another type than CUDA.
  computed_in_float32,
  // The result is a number for the host, such as item(). The host waits and gets the CPU's answer.
  for_the_host,
  // The sizes of results depend on values, such as nonzero(). The CPU's kernel runs, and CUDA's does not: temporary
  // memory of such operators is not seen.
  sized_by_values,
};

Rule rule_for(const c10::OperatorHandle& op);

// Operators without a kernel of their own for CUDA whose composite kernel is one operation of the device: copies, and
// convolutions, which differ in what they are made of.
bool is_one_operation(const c10::OperatorName& name);

// Bytes and operations for the roofline of the virtual clock.
double bytes_of(const torch::jit::Stack& values);
double flops_of(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const torch::jit::Stack& results);

}  // namespace emulated_cuda
