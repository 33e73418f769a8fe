#include "host_tier.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <memory>
#include <utility>

namespace lowtide::torch_runtime {
namespace {

// Of PyTorch's own streams, which are few, the caller may have any.
c10::cuda::CUDAStream make_stream(c10::DeviceIndex device) {
  const c10::cuda::CUDAGuard here(device);
  cudaStream_t stream = nullptr;
  C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return c10::cuda::getStreamFromExternal(stream, device);
}

std::int64_t slot_at(const void* address) {
  return reinterpret_cast<std::int64_t>(address);
}

std::byte* address_of(std::int64_t slot) {
  return reinterpret_cast<std::byte*>(slot);  // NOLINT: a slot is an address
}

struct Home {
  PinnedMemory& memory;
  std::byte* block;
};

void let_go(void* context) {
  const std::unique_ptr<Home> home(static_cast<Home*>(context));
  home->memory.give_back(home->block);
}

}  // namespace

std::int64_t HostTier::reserve(std::int64_t bytes) {
  return slot_at(memory_.take(bytes, c10::cuda::getCurrentCUDAStream(device_)));
}

void HostTier::release(std::int64_t slot, std::int64_t) {
  memory_.give_back(address_of(slot));
}

c10::DataPtr HostTier::make_home(std::int64_t bytes) {
  auto home = std::make_unique<Home>(Home{memory_, memory_.take(bytes, c10::cuda::getCurrentCUDAStream(device_))});
  std::byte* block = home->block;
  return {block, home.release(), &let_go, c10::Device(c10::kCUDA, device_)};
}

std::optional<std::int64_t> HostTier::slot_of(const void* address) const {
  return memory_.contains(address) ? std::optional(slot_at(address)) : std::nullopt;
}

SlowTier::Ticket HostTier::store(const void* from, std::int64_t slot, std::int64_t bytes) {
  return move(address_of(slot), from, slot, bytes, stores_);
}

SlowTier::Ticket HostTier::load(std::int64_t slot, void* to, std::int64_t bytes) {
  return move(to, address_of(slot), slot, bytes, loads_);
}

c10::cuda::CUDAEvent HostTier::take_event() {
  if (events_.empty()) return {};
  c10::cuda::CUDAEvent event = std::move(events_.back());
  events_.pop_back();
  return event;
}

// After what is queued on the current stream, and after transfers of the same slot.
SlowTier::Ticket HostTier::move(void* to, const void* from, std::int64_t slot, std::int64_t bytes,
                                std::optional<c10::cuda::CUDAStream>& link) {
  const c10::cuda::CUDAGuard here(device_);
  const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(device_);
  memory_.note_use(address_of(slot), current);
  const std::lock_guard lock(mutex_);
  if (!link) link = make_stream(device_);
  c10::cuda::CUDAEvent done = take_event();
  if (waits_before_) {
    done.record(current);
    done.block(*link);
    for (auto& [ticket, other] : under_way_) {
      if (other.slot < slot + bytes && slot < other.slot + other.bytes) other.done.block(*link);
    }
  }
  C10_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, *link));
  done.record(*link);
  under_way_.emplace(++last_, Transfer{slot, bytes, std::move(done)});
  return last_;
}

void HostTier::wait(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  const auto found = under_way_.find(ticket);
  TORCH_CHECK(found != under_way_.end(), "lowtide: transfer ", ticket, " is not under way");
  if (waits_after_) found->second.done.block(c10::cuda::getCurrentCUDAStream(device_));
  events_.push_back(std::move(found->second.done));
  under_way_.erase(found);
}

void HostTier::copy(void* to, const void* from, std::int64_t bytes) {
  const c10::cuda::CUDAGuard here(device_);
  C10_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                                 c10::cuda::getCurrentCUDAStream(device_)));
}

}  // namespace lowtide::torch_runtime
