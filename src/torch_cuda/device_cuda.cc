#include "device_cuda.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <set>
#include <utility>

namespace lowtide::torch_runtime {
namespace {

std::mutex devices_mutex;
std::vector<CudaDevice*>& devices() {
  static auto* list = new std::vector<CudaDevice*>;
  return *list;
}

// cuBLAS keeps a workspace for each thread and stream. It is an ordinary block: made by the first product of two
// matrices, which is not to be one of a planned step.
void make_workspaces(const c10::cuda::CUDAStream& stream) {
  thread_local std::set<std::pair<c10::DeviceIndex, c10::StreamId>> made;
  if (!made.emplace(stream.device_index(), stream.id()).second) return;
  const at::Tensor square = at::zeros({16, 16}, at::TensorOptions(stream.device()));
  at::addmm(at::zeros({16}, at::TensorOptions(stream.device())), square, square);
}

}  // namespace

CudaDevice::CudaDevice(c10::DeviceIndex index, Runtime& runtime, c10::cuda::CUDACachingAllocator::CUDAAllocator& memory)
    : index_(index), runtime_(runtime), memory_(memory) {
  const std::lock_guard lock(devices_mutex);
  devices().push_back(this);
}

CudaDevice* CudaDevice::with(const void* address) {
  const std::lock_guard lock(devices_mutex);
  const auto found =
      std::find_if(devices().begin(), devices().end(), [&](const CudaDevice* one) { return one->contains(address); });
  return found == devices().end() ? nullptr : *found;
}

std::byte* CudaDevice::base() const {
  const std::lock_guard lock(mutex_);
  return block_.begin;
}

CudaDevice* CudaDevice::at(c10::DeviceIndex index) {
  const std::lock_guard lock(devices_mutex);
  const auto found =
      std::find_if(devices().begin(), devices().end(), [&](const CudaDevice* one) { return one->index_ == index; });
  return found == devices().end() ? nullptr : *found;
}

bool CudaDevice::contains(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  return block_.contains(pointer) ||
         std::any_of(left_.begin(), left_.end(), [&](const Block& block) { return block.contains(pointer); });
}

CudaDevice::Block CudaDevice::allocate(std::int64_t bytes) {
  if (bytes == 0) return {};
  const c10::cuda::CUDAGuard here(index_);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(index_);
  auto* begin = static_cast<std::byte*>(memory_.raw_alloc_with_stream(static_cast<std::size_t>(bytes), stream));
  last_ = stream;
  done_.record(stream);
  return {begin, bytes, stream};
}

// Blocks go back when nobody holds a part of them any more. Wants the mutex.
void CudaDevice::free_unheld() {
  std::erase_if(left_, [&](const Block& block) {
    if (runtime_.is_held(block.begin, block.bytes)) return false;
    let_wait(*block.stream);
    memory_.raw_delete(block.begin);
    return true;
  });
}

// The old block goes first, back to the device: two arenas may be more than there is.
void CudaDevice::resize(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const Block old = std::exchange(block_, {});
  if (old.bytes > 0) left_.push_back(old);
  free_unheld();
  if (old.bytes > 0) memory_.emptyCache({0, 0});
  try {
    block_ = allocate(bytes);
  } catch (...) {
    block_ = allocate(old.bytes);  // what was there a moment ago
    throw;
  }
}

void CudaDevice::before_step() {
  const c10::cuda::CUDAGuard here(index_);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(index_);
  make_workspaces(stream);
  const std::lock_guard lock(mutex_);
  let_wait(stream);
  others_.clear();
}

// What is queued there from now on comes after all that uses the arena. Wants the mutex.
void CudaDevice::let_wait(const c10::cuda::CUDAStream& stream) {
  if (!waits_) return;
  if (last_ && *last_ != stream) done_.block(stream);
  for (const c10::cuda::CUDAStream& other : others_) {
    c10::cuda::CUDAEvent used;
    used.record(other);
    used.block(stream);
  }
}

void CudaDevice::after_step() {
  last_ = c10::cuda::getCurrentCUDAStream(index_);
  done_.record(*last_);
}

std::shared_ptr<HostTier> CudaDevice::host() {
  const std::lock_guard lock(mutex_);
  if (!host_) host_ = std::make_shared<HostTier>(index_);
  return host_;
}

bool CudaDevice::note_use_of_tier(const void* address, const c10::cuda::CUDAStream& stream) {
  const std::lock_guard lock(mutex_);
  return host_ && host_->note_use(address, stream);
}

void CudaDevice::wait_for_stream(c10::cuda::CUDAStream stream) {
  const std::lock_guard lock(mutex_);
  if (std::find(others_.begin(), others_.end(), stream) == others_.end()) others_.push_back(stream);
}

}  // namespace lowtide::torch_runtime
