// internals.h: what the extension relies on of PyTorch beyond its public API, and any minor version may change.
//
//   SetCPUAllocator, alloc_cpu, free_cpu     our allocator stands in front of PyTorch's own allocation
//   CUDACachingAllocator::allocator          and on CUDA devices: an atomic pointer to the one that is asked
//   Allocator, StorageImpl, TensorImpl       tensors are made over the arena without an operator
//   ExcludeDispatchKeyGuard, autocast keys   operators of a plan run below autograd and autocast
//   Dispatcher, OperatorHandle               by schema, with arguments on a stack
//   ThreadLocalState and its Python objects  what the autograd engine takes along to its threads
//   RecordFunction, thread-local callbacks   which operator is at work when memory is asked for
//   CPUGeneratorImpl, offsets of philox      random states are saved and put back
//   autograd::Node, gradient accumulators, THPVariable, jit::toIValue, autocast::cached_cast
//
// The extension is built for each minor version, so that nothing of this crosses a binary of another. What the compiler
// can hold is held here; whether the numbers are those of eager, the trial step of python/lowtide/_trust tells.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lowtide::torch_runtime {

static_assert(std::is_same_v<decltype(c10::alloc_cpu(std::size_t{})), void*>);
static_assert(std::is_same_v<decltype(&c10::free_cpu), void (*)(void*)>);
static_assert(std::is_same_v<decltype(&c10::SetCPUAllocator), void (*)(c10::Allocator*, std::uint8_t)>);
static_assert(std::is_same_v<c10::DeleterFnPtr, void (*)(void*)>);
static_assert(std::is_base_of_v<c10::GeneratorImpl, at::CPUGeneratorImpl>);

}  // namespace lowtide::torch_runtime
