// recompute.h: what is dropped and made again, to need less memory for some more time.
//
// An algorithm is known by its name: one line in src/trade/registry.cc adds one, and plan(), the Python package and
// the tests find it there. Each gives trades of memory for time; a budget picks one of them.
#pragma once

#include <span>
#include <string_view>

#include "lowtide/status.h"

namespace lowtide {

struct RecomputeAlgorithm {
  std::string_view name;
  std::string_view description;  // one sentence
};

// "auto" first, then those to compare with.
std::span<const RecomputeAlgorithm> recompute_algorithms();

}  // namespace lowtide
