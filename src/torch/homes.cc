#include "homes.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <malloc.h>

#include <optional>
#include <utility>

#include "device.h"
#include "program.h"
#include "tier/tier_file.h"

namespace lowtide::torch_runtime {

bool has_own_memory(const at::Tensor& tensor) {
  return tensor.storage().allocator() != nullptr;
}

std::size_t storage_uses(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const std::size_t by_python = storage->pyobj_slot()->load_pyobj() == nullptr ? 0 : 1;
  return tensor.storage().use_count() - by_python - Program::uses_of(storage);
}

bool was_shown_as_array(const at::Tensor& tensor) {
  return !tensor.storage().resizable();  // tensor_to_numpy() marks it so
}

void put_away(const at::Tensor& tensor, SlowTier& tier) {
  const c10::Storage& storage = tensor.storage();
  const auto bytes = static_cast<std::int64_t>(storage.nbytes());
  if (bytes == 0 || tier.slot_of(storage.data())) return;
  c10::DataPtr home = tier.make_home(bytes);
  // Not through a mapping, whose pages would be in memory then.
  tier.wait(tier.store(storage.data(), *tier.slot_of(home.get()), bytes));
  if (!tensor.is_cpu()) {  // it may belong to another stream than this one, which reads it last
    tensor.record_stream(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
  }
  storage.set_data_ptr_noswap(std::move(home));
  if (tensor.is_cpu()) malloc_trim(0);  // what was freed goes back to the system
}

void bring_back(const at::Tensor& tensor, SlowTier& tier) {
  const c10::Storage& storage = tensor.storage();
  const std::optional<std::int64_t> slot = tier.slot_of(storage.data());
  if (!slot) return;
  const auto bytes = static_cast<std::int64_t>(storage.nbytes());
  const at::Tensor memory = at::empty({bytes}, at::TensorOptions(at::kByte).device(tensor.device()));
  tier.wait(tier.load(*slot, memory.mutable_data_ptr(), bytes));
  storage.set_data_ptr_noswap(memory.storage().set_data_ptr(c10::DataPtr(nullptr, tensor.device())));
}

bool is_away(const at::Tensor& tensor) {
  const void* address = tensor.storage().data();
  if (tensor.is_cpu()) return tier::TierFile::find(address).has_value();
  Device* device = find_device(tensor.device());
  const std::shared_ptr<SlowTier> tier = device == nullptr ? nullptr : device->host_tier();
  return tier != nullptr && tier->slot_of(address).has_value();
}

bool is_in(const at::Tensor& tensor, const SlowTier& tier) {
  return tier.slot_of(tensor.storage().data()).has_value();
}

}  // namespace lowtide::torch_runtime
