// chance.h: a small random generator of our own, so that plans do not depend on whose library this is built with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lowtide {

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : state_(seed * 7919 + 88172645463325252ULL) {}

  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }
  std::size_t below(std::size_t count) { return next() % count; }
  double share() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace lowtide
