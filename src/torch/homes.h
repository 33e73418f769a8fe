// homes.h: tensors of the caller's whose memory is in a tier.
#pragma once

#include <ATen/core/Tensor.h>

#include "slow_tier.h"

namespace lowtide::torch_runtime {

// Whether nobody but the tensor itself and programs refers to its storage: who has its address would not follow.
bool has_own_storage(const at::Tensor& tensor);

// Gives the tensor's storage a home in the tier instead of its memory: all tensors that share the storage follow.
void put_away(const at::Tensor& tensor, SlowTier& tier);

// The opposite: ordinary memory, if its memory is in the tier. What is loaded is verified.
void bring_back(const at::Tensor& tensor, SlowTier& tier);

// Whether its memory is in any tier.
bool is_away(const at::Tensor& tensor);

}  // namespace lowtide::torch_runtime
