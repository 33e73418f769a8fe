// ordered_bits.h: a set of numbers below some size, in order, a bit each.
//
//   level 1   1 . . 1                     a bit for each word below that has any
//   level 0   1.1. .... .... .11.         a bit for each number
//
// The next member is found by looking at two words a level, and there are four levels for a million numbers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace lowtide {

class OrderedBits {
 public:
  using Number = std::uint32_t;

  explicit OrderedBits(std::size_t size) : none_(static_cast<Number>(size)) {
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size);
    } while (size > 1);
  }

  void insert(Number number) {
    for (std::vector<std::uint64_t>& level : levels_) {
      std::uint64_t& word = level[number / 64];
      const bool had_any = word != 0;
      word |= std::uint64_t{1} << (number % 64);
      if (had_any) return;
      number /= 64;
    }
  }

  void erase(Number number) {
    for (std::vector<std::uint64_t>& level : levels_) {
      std::uint64_t& word = level[number / 64];
      word &= ~(std::uint64_t{1} << (number % 64));
      if (word != 0) return;
      number /= 64;
    }
  }

  bool contains(Number number) const { return (levels_[0][number / 64] >> (number % 64) & 1) != 0; }

  // The least member from `number` on, or none().
  Number next(Number number) const {
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      if (number / 64 >= levels_[level].size()) return none_;
      const std::uint64_t rest = levels_[level][number / 64] >> (number % 64);
      if (rest != 0) return least_below(number + static_cast<Number>(std::countr_zero(rest)), level);
      number = number / 64 + 1;
    }
    return none_;
  }
  Number none() const { return none_; }

  class Iterator {
   public:
    using value_type = Number;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    Iterator(const OrderedBits& set, Number at) : set_(&set), at_(at) {}
    Number operator*() const { return at_; }
    Iterator& operator++() {
      at_ = set_->next(at_ + 1);
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const OrderedBits* set_ = nullptr;
    Number at_ = 0;
  };
  Iterator begin() const { return {*this, next(0)}; }
  Iterator end() const { return {*this, none_}; }

 private:
  // The least number below the `bit` of a level.
  Number least_below(Number bit, std::size_t level) const {
    while (level-- > 0) bit = bit * 64 + static_cast<Number>(std::countr_zero(levels_[level][bit]));
    return bit;
  }

  Number none_;
  std::vector<std::vector<std::uint64_t>> levels_;
};

}  // namespace lowtide
