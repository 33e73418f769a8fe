// allocator_settings.h: which settings PyTorch takes, and what they say about one request.
#pragma once

#include <cstdint>

#include "lowtide/caching_allocator.h"

namespace lowtide {

inline constexpr std::uint64_t kMiB = 1 << 20;
inline constexpr std::uint64_t kMinBlock = 512;

// E505 if PyTorch would refuse them.
Status check(const AllocatorSettings& settings);

// A request, rounded up. It must be of at most 2^62 bytes.
std::uint64_t rounded_request(const AllocatorSettings& settings, std::uint64_t size);

constexpr std::uint64_t round_up(std::uint64_t size, std::uint64_t unit) {
  return (size + unit - 1) / unit * unit;
}

}  // namespace lowtide
