#include "loan.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "allocator.h"
#include "held.h"

namespace lowtide::torch_runtime {

// It is given back with the last stretch, and with it what of the arena no program needs.
class Loan::Place {
 public:
  Place(Device& device, Lease lease) : device_(device), lease_(std::move(lease)) {}
  ~Place() {
    lease_.give_back();
    try {
      Arena& arena = Arena::on(device_);
      arena.fit(end_of_escaped(arena));
    } catch (const c10::Error&) {  // the arena stays as it is
    }
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  Device& device_;
  Lease lease_;
};

namespace {

struct Stretch {
  std::byte* begin;
  std::shared_ptr<void> place;
  c10::Stream stream;  // where the caller has it
};

void return_stretch(void* context) {
  const std::unique_ptr<Stretch> stretch(static_cast<Stretch*>(context));
  release_in_arena(stretch->begin);
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

Loan::Loan(Device& device, Lease place) : device_(device), place_(std::make_shared<Place>(device, std::move(place))) {
  device_.leave_to_caller();
}

c10::DataPtr Loan::lend(std::byte* begin, std::int64_t bytes) const {
  auto* stretch = new Stretch{begin, place_, current_stream(device_.where())};
  mark_escaped(begin, bytes);
  return {begin, stretch, &return_stretch, device_.where()};
}

bool is_lent(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return false;
  return tensor.storage().data_ptr().get_deleter() == &return_stretch;
}

bool is_only_in_one_place(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  return !is_held(*tensor.unsafeGetTensorImpl(), tensor.use_count(), 1) &&
         !is_held(*storage.unsafeGetStorageImpl(), storage.use_count(), 1);
}

// Whoever uses it on any stream has done so before, and finds it there afterwards.
void move_out(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  const auto bytes = static_cast<std::int64_t>(storage.nbytes());
  const auto options = at::TensorOptions(at::kByte).device(tensor.device());
  wait_for(tensor.device());
  const c10::StreamGuard there(static_cast<const Stretch*>(storage.data_ptr().get_context())->stream);
  const at::Tensor memory = at::empty({bytes}, options);
  memory.copy_(at::empty({0}, options).set_(storage, 0, {bytes}, {1}));
  wait_for(tensor.device());
  storage.set_data_ptr_noswap(memory.storage().set_data_ptr(c10::DataPtr(nullptr, tensor.device())));
}

}  // namespace lowtide::torch_runtime
