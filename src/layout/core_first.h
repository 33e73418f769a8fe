// core_first.h: a packing below a capacity, begun at the fullest sections.
//
// The pieces over the fullest sections are the core, and are packed exactly. The others are loose: they go into the
// gaps, the largest first; where some find none, again with these further ahead. A loose piece that finds no gap in the
// best of these orders joins the core, and the part of the core that it joins is packed again; what is loose beside it
// is taken out and put in again. So the core grows until everything fits, and it grows only where that is hard. A core
// that cannot be packed proves that the whole cannot.
#pragma once

#include "layout/algorithms.h"
#include "layout/valley_search.h"

namespace lowtide {

// `share`: sections with at least this share of the bound make the core that it begins with; with 0 all pieces do.
SearchResult pack_core_first(const Pieces& problem, Units capacity, double share, const SearchOptions& options,
                             Work& work);

}  // namespace lowtide
