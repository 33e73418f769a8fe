// keys.h: 128-bit keys by which searches know again what failed.
//
// A set's key is made of its members' keys, each as good as random: two sets that differ have the same key about once
// in 2^128, so that what is known by its key may count in a proof.
#pragma once

#include <cstdint>

namespace lowtide {

__extension__ using Key = unsigned __int128;

inline std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Odd, so that its multiples are different too.
inline Key key_of(std::uint64_t member) {
  return (Key{mixed(2 * member)} << 64) | mixed(2 * member + 1) | 1;
}

}  // namespace lowtide
