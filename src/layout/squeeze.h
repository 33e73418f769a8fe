// squeeze.h: makes a packing smaller by searching for one below lower and lower capacities.
#pragma once

#include "layout/algorithms.h"

namespace lowtide {

struct Packing {
  Offsets offsets;
  Units top;
  Units bound;  // proven: no packing has a lower top
  std::string_view algorithm;
  std::vector<std::uint32_t> conflict;  // pieces that do not fit below `bound`
};

// Until the top is no higher than the bound, or than `enough`, or the work is used up. The search takes any part of a
// small problem, and the core of a large one first.
void squeeze(const Pieces& problem, Units enough, Packing& packing, Work& work);

}  // namespace lowtide
