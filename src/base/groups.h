// groups.h: numbers that belong together, joined pair by pair.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace lowtide {

class Groups {
 public:
  explicit Groups(std::size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), std::uint32_t{0}); }

  // The first number of the group stands for it.
  std::uint32_t find(std::uint32_t number) {
    while (parent_[number] != number) number = parent_[number] = parent_[parent_[number]];
    return number;
  }
  void join(std::uint32_t a, std::uint32_t b) {
    const auto [first, second] = std::minmax({find(a), find(b)});
    parent_[second] = first;
  }

 private:
  std::vector<std::uint32_t> parent_;
};

}  // namespace lowtide
