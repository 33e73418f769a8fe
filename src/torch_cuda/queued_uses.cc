#include "queued_uses.h"

#include <algorithm>
#include <limits>

namespace lowtide::torch_runtime {
namespace {

// The end of what may be anywhere.
const std::byte* end_of_all() {
  return reinterpret_cast<const std::byte*>(std::numeric_limits<std::uintptr_t>::max());  // NOLINT: to compare with
}

}  // namespace

void QueuedUses::set_last(const std::byte* begin, std::int64_t bytes, const c10::cuda::CUDAStream& stream) {
  if (bytes == 0) return;
  const std::byte* end = begin + bytes;
  std::erase_if(uses_, [&](const Use& use) {
    const bool is_renewed = use.begin == begin && use.end == end && use.stream == stream;
    return !is_renewed && use.begin >= begin && use.end <= end;
  });
  record(begin, end, stream);
}

void QueuedUses::add_of_all(const c10::cuda::CUDAStream& stream) {
  record(nullptr, end_of_all(), stream);
}

void QueuedUses::record(const std::byte* begin, const std::byte* end, const c10::cuda::CUDAStream& stream) {
  auto found = std::find_if(uses_.begin(), uses_.end(), [&](const Use& use) {
    return use.begin == begin && use.end == end && use.stream == stream;
  });
  if (found == uses_.end()) found = uses_.insert(uses_.end(), Use{begin, end, stream, {}});
  found->done.record(stream);
}

void QueuedUses::let_wait(const std::byte* begin, std::int64_t bytes, const c10::cuda::CUDAStream& stream) {
  std::erase_if(uses_, [&](Use& use) {
    const bool overlaps = use.begin < begin + bytes && begin < use.end;
    if (!overlaps || use.stream == stream) return false;
    if (use.done.query()) return true;
    use.done.block(stream);
    return false;
  });
}

void QueuedUses::forget(const std::byte* begin, std::int64_t bytes) {
  std::erase_if(uses_, [&](const Use& use) { return use.begin >= begin && use.end <= begin + bytes; });
}

}  // namespace lowtide::torch_runtime
