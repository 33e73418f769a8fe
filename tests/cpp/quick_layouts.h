// quick_layouts.h: the names of our layout algorithms. The published ones are too slow for most tests and have one of
// their own, address_programs_test.cc.
#pragma once

#include <string_view>
#include <vector>

#include "layout/algorithms.h"

namespace lowtide {

inline std::vector<std::string_view> quick_layouts() {
  std::vector<std::string_view> names = {"auto", "exact"};
  for (const Packer& packer : packers()) names.push_back(packer.name);
  return names;
}

}  // namespace lowtide
