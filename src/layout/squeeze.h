// squeeze.h: makes a packing smaller by searching for one below lower and lower capacities.
#pragma once

#include "layout/algorithms.h"
#include "layout/bounds.h"

namespace lowtide {

struct Packing {
  Offsets offsets;
  Units top;
  Bound bound;
  std::string_view algorithm;
};

// Until the top is no higher than the bound, or than `enough`, or the work is used up.
void squeeze(const Pieces& problem, Units enough, std::size_t threads, Packing& packing, Work& work);

}  // namespace lowtide
