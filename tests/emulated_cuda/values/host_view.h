// Device tensors as CPU tensors on the same bytes, for one call of an operator.
//
// A view owns nothing: work that is queued must not keep device memory alive, or late mode would hide memory that is
// freed too early. Views of one storage share one storage, so that in-place operators and overlaps work as on the
// device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <unordered_map>

namespace emulated_cuda {

class HostViews {
 public:
  // What the CPU's kernel gets for an argument. `written`: the operator writes to it. A tensor on the host is taken as
  // it is if work is done at once. Otherwise it is copied now, unless it is written or pinned: then it is used when the
  // stream gets there.
  c10::IValue argument(const c10::IValue& value, bool written);

  // A device tensor's bytes.
  at::Tensor view(const at::Tensor& tensor);

 private:
  at::Tensor host_side(const at::Tensor& tensor, bool written);
  const c10::Storage& storage(const c10::Storage& of);

  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
};

// Results that only the CPU knows, on a device.
c10::IValue to_device(const c10::IValue& value, c10::Device device);

}  // namespace emulated_cuda
