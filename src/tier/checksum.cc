#include "tier/checksum.h"

#include <array>
#include <bit>
#include <cstring>

namespace lowtide::tier {
namespace {

constexpr std::size_t kLanes = 4;
constexpr std::size_t kWord = sizeof(std::uint64_t);

std::uint64_t step(std::uint64_t state, std::uint64_t word) {
  return std::rotl(state + word * 0xc2b2'ae3d'27d4'eb4fu, 31) * 0x9e37'79b1'85eb'ca87u;
}

}  // namespace

std::uint64_t checksum(const void* bytes, std::size_t size) {
  const auto* next = static_cast<const std::byte*>(bytes);
  std::array<std::uint64_t, kLanes> lanes = {0x243f'6a88'85a3'08d3u, 0x1319'8a2e'0370'7344u, 0xa409'3822'299f'31d0u,
                                             0x082e'fa98'ec4e'6c89u};  // digits of pi
  std::size_t left = size;
  for (; left >= kLanes * kWord; left -= kLanes * kWord, next += kLanes * kWord) {
    std::array<std::uint64_t, kLanes> words;
    std::memcpy(words.data(), next, sizeof(words));
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = step(lanes[lane], words[lane]);
  }
  std::array<std::uint64_t, kLanes> rest = {};
  if (left > 0) std::memcpy(rest.data(), next, left);
  std::uint64_t result = size;
  for (std::size_t lane = 0; lane < kLanes; ++lane) result = step(step(result, lanes[lane]), rest[lane]);
  return result ^ (result >> 32);
}

}  // namespace lowtide::tier
