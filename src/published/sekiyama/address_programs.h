// address_programs.h: offsets by two integer programs, that of Sekiyama et al. and the address constraints of MODeL.
#pragma once

#include "layout/algorithms.h"

namespace lowtide {

struct ProvenOffsets {
  Offsets offsets;
  Units bound;  // no packing has a lower top
};

// E403 for problems that are too large, and if `work` does not suffice to find anything.
using AddressSolver = Result<ProvenOffsets> (*)(const Pieces& problem, Work& work);
Result<ProvenOffsets> sekiyama_program(const Pieces& problem, Work& work);
Result<ProvenOffsets> model_program(const Pieces& problem, Work& work);

// The same for items as they are given.
Result<BoundedLayout> lay_out_by(AddressSolver solver, std::span<const LayoutItem> items, Work& work);

}  // namespace lowtide
