// homes.h: tensors of the caller's whose memory is in a tier.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "slow_tier.h"

namespace lowtide::torch_runtime {

// Whether its memory is its storage's own, and not lent to it (from_numpy, a mapped file).
bool has_own_memory(const at::Tensor& tensor);

// How many tensors refer to its storage, but for those of programs: these follow if its memory is exchanged.
std::size_t storage_uses(const at::Tensor& tensor);

// Whether an array of NumPy has ever shown its memory, by the address: that would not follow.
bool was_shown_as_array(const at::Tensor& tensor);

// Gives the tensor's storage a home in the tier instead of its memory: all tensors that share the storage follow.
void put_away(const at::Tensor& tensor, SlowTier& tier);

// The opposite: ordinary memory, if its memory is in the tier. What is loaded is verified.
void bring_back(const at::Tensor& tensor, SlowTier& tier);

// Whether its memory is in any tier, or in this one.
bool is_away(const at::Tensor& tensor);
bool is_in(const at::Tensor& tensor, const SlowTier& tier);

}  // namespace lowtide::torch_runtime
