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
  const auto has = [&](const Block& block) { return block.contains(pointer); };
  return has(block_) || std::any_of(annexes_.begin(), annexes_.end(), has) ||
         std::any_of(left_.begin(), left_.end(), has);
}

CudaDevice::Block CudaDevice::allocate(std::int64_t bytes) {
  if (bytes == 0) return {};
  const c10::cuda::CUDAGuard here(index_);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(index_);
  auto* begin = static_cast<std::byte*>(memory_.raw_alloc_with_stream(static_cast<std::size_t>(bytes), stream));
  uses_.set_last(begin, bytes, stream);
  return {begin, bytes, stream};
}

// It goes back when nobody holds a part of it any more. Wants the mutex, as all below.
void CudaDevice::leave(const Block& block) {
  if (block.bytes > 0) left_.push_back(block);
  note_others();
  free_unheld();
}

void CudaDevice::free_unheld() {
  std::erase_if(left_, [&](const Block& block) {
    if (runtime_.is_held(block.begin, block.bytes)) return false;
    if (waits_) uses_.let_wait(block.begin, block.bytes, *block.stream);
    uses_.forget(block.begin, block.bytes);
    memory_.raw_delete(block.begin);
    return true;
  });
}

// What is queued by now on the streams that record_stream() has named may be of any part of all this.
void CudaDevice::note_others() {
  for (const c10::cuda::CUDAStream& other : others_) uses_.add_of_all(other);
}

// Whether somebody outside of a step holds a part of all this.
bool CudaDevice::is_held() const {
  const auto held = [&](const Block& block) { return runtime_.is_held(block.begin, block.bytes); };
  return held(block_) || !left_.empty() || std::any_of(annexes_.begin(), annexes_.end(), held);
}

// The old block goes first, back to the device: two arenas may be more than there is.
void CudaDevice::resize(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const Block old = std::exchange(block_, {});
  leave(old);
  if (old.bytes > 0) memory_.emptyCache({0, 0});
  try {
    block_ = allocate(bytes);
  } catch (...) {
    block_ = allocate(old.bytes);  // what was there a moment ago
    throw;
  }
}

std::byte* CudaDevice::add_annex(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  annexes_.push_back(allocate(bytes));
  return annexes_.back().begin;
}

void CudaDevice::remove_annex(std::byte* begin) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(annexes_.begin(), annexes_.end(), [&](const Block& block) { return block.begin == begin; });
  const Block block = *found;
  annexes_.erase(found);
  leave(block);
}

void CudaDevice::before_step(const std::byte* begin, std::int64_t bytes) {
  const c10::cuda::CUDAGuard here(index_);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(index_);
  make_workspaces(stream);
  const std::lock_guard lock(mutex_);
  note_others();
  free_unheld();
  if (!is_held()) others_.clear();
  if (waits_) uses_.let_wait(begin, bytes, stream);
}

void CudaDevice::after_step(const std::byte* begin, std::int64_t bytes) {
  const c10::cuda::CUDAGuard here(index_);
  const std::lock_guard lock(mutex_);
  uses_.set_last(begin, bytes, c10::cuda::getCurrentCUDAStream(index_));
}

void CudaDevice::leave_to_caller() {
  wait_for_stream(c10::cuda::getCurrentCUDAStream(index_));
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
