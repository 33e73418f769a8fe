#include "tier/slots.h"

#include <algorithm>
#include <iterator>

namespace lowtide::tier {

std::int64_t Slots::take(std::int64_t bytes) {
  const auto found =
      std::find_if(free_.begin(), free_.end(), [bytes](const auto& range) { return range.second >= bytes; });
  if (found == free_.end()) {
    const std::int64_t offset = end_;
    end_ += bytes;
    return offset;
  }
  const auto [offset, size] = *found;
  free_.erase(found);
  if (size > bytes) free_.emplace(offset + bytes, size - bytes);
  return offset;
}

void Slots::give_back(std::int64_t offset, std::int64_t bytes) {
  if (bytes == 0) return;
  auto after = free_.lower_bound(offset);
  if (after != free_.end() && offset + bytes == after->first) {
    bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      free_.erase(before);
    }
  }
  if (offset + bytes == end_) {
    end_ = offset;
  } else {
    free_.emplace(offset, bytes);
  }
}

}  // namespace lowtide::tier
