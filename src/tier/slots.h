// slots.h: which ranges of a file are taken.
//
//   0           8K        12K          20K = end
//   |-- taken --|-- free --|-- taken --|          take(4K) gives 8K, take(8K) gives 20K and moves the end
//
// The first free range that is large enough is taken. (Test Slots.AreReused of tier_test.cc.)
// Ranges are in whole pages. Free ones that touch become one; what is free at the end is no longer a part of it.
#pragma once

#include <cstdint>
#include <map>

namespace lowtide::tier {

class Slots {
 public:
  std::int64_t take(std::int64_t bytes);
  void give_back(std::int64_t offset, std::int64_t bytes);

  std::int64_t end() const { return end_; }

 private:
  std::map<std::int64_t, std::int64_t> free_;  // bytes by offset
  std::int64_t end_ = 0;
};

}  // namespace lowtide::tier
