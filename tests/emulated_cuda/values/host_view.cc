#include "host_view.h"

#include <ATen/ops/empty_strided.h>

#include "../runtime/interface.h"

namespace emulated_cuda {
namespace {

void owns_nothing(void*) {}

at::Tensor tensor_on(const c10::Storage& storage, const at::Tensor& like) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                       c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype());
  auto* const impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  return made;
}

}  // namespace

const c10::Storage& HostViews::storage(const c10::Storage& of) {
  c10::Storage& made = storages_[of.unsafeGetStorageImpl()];
  if (made) return made;
  char* address = static_cast<char*>(const_cast<void*>(of.data()));
  if (address != nullptr && emulated_cuda_is_device(address) != 0) address += emulated_cuda_shadow_distance();
  return made = c10::Storage(c10::Storage::use_byte_size_t(), of.nbytes(),
                             c10::DataPtr(address, address, &owns_nothing, c10::Device(c10::kCPU)), nullptr, false);
}

at::Tensor HostViews::view(const at::Tensor& tensor) {
  at::Tensor& made = tensors_[tensor.unsafeGetTensorImpl()];
  if (!made.defined()) made = tensor_on(storage(tensor.storage()), tensor);
  return made;
}

at::Tensor HostViews::host_side(const at::Tensor& tensor, bool written) {
  if (!tensor.defined() || tensor.is_meta()) return tensor;
  if (tensor.is_cuda()) return view(tensor);
  if (emulated_cuda_is_late() == 0) return tensor;
  if (written || emulated_cuda_is_pinned(tensor.const_data_ptr()) != 0) return view(tensor);
  at::Tensor copied = tensor.detach().clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copied.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copied;
}

c10::IValue HostViews::argument(const c10::IValue& value, bool written) {
  if (value.isTensor()) return host_side(value.toTensor(), written);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(host_side(tensor, written));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional<at::Tensor>(host_side(*tensor, written)) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice()) return c10::Device(c10::kCPU);
  return value;
}

c10::IValue to_device(const c10::IValue& value, c10::Device device) {
  const auto moved = [device](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    at::Tensor made = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device));
    HostViews().view(made).copy_(tensor);
    return made;
  };
  if (value.isTensor()) return moved(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(moved(tensor));
  return list;
}

}  // namespace emulated_cuda
