// reasons.h: sets of sections that explain why something cannot be.
//
// A failure is explained by sections: as long as what is placed over these stays as it is, the failure stays. Up to 512
// sections a set is exact, bit by bit; above it is the run from its first to its last section, which explains more than
// needed and so stays right.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace lowtide {

template <int kWords>
class SectionBits {
 public:
  static constexpr int kMostSections = 64 * kWords;

  static SectionBits of(int section) {
    SectionBits set;
    set.words_[static_cast<std::size_t>(section / 64)] = std::uint64_t{1} << (section % 64);
    return set;
  }
  void add(const SectionBits& other) {
    for (std::size_t w = 0; w < kWords; ++w) words_[w] |= other.words_[w];
  }
  bool meets(int begin, int end) const {
    for (int word = begin / 64; word <= (end - 1) / 64; ++word) {
      std::uint64_t bits = words_[static_cast<std::size_t>(word)];
      if (word == begin / 64) bits &= ~std::uint64_t{0} << (begin % 64);
      if (word == (end - 1) / 64) bits &= ~std::uint64_t{0} >> (63 - (end - 1) % 64);
      if (bits != 0) return true;
    }
    return false;
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::size_t w = 0; w < kWords; ++w) {
      for (std::uint64_t bits = words_[w]; bits != 0; bits &= bits - 1) {
        visit(static_cast<int>(64 * w) + std::countr_zero(bits));
      }
    }
  }

 private:
  std::array<std::uint64_t, kWords> words_ = {};
};

class SectionRun {
 public:
  static constexpr int kMostSections = std::numeric_limits<int>::max();

  static SectionRun of(int section) {
    SectionRun set;
    set.begin_ = section;
    set.end_ = section + 1;
    return set;
  }
  void add(const SectionRun& other) {
    begin_ = std::min(begin_, other.begin_);
    end_ = std::max(end_, other.end_);
  }
  bool meets(int begin, int end) const { return begin_ < end && begin < end_; }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (int section = begin_; section < end_; ++section) visit(section);
  }

 private:
  int begin_ = std::numeric_limits<int>::max();
  int end_ = 0;
};

}  // namespace lowtide
