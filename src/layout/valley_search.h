// valley_search.h: an exact search for a packing below a capacity.
//
// Pieces are stacked from the bottom up. Every section has a height: the top of what is placed over it. A valley is a
// run of sections of one height between higher neighbours, and the search asks of one section in a valley: which piece
// comes next here? Either one that rests on the valley's floor, or none: then the section is raised to the least height
// at which a piece could rest instead, and what lies below is lost. These answers exclude each other and leave nothing
// out, so that every packing whose pieces all rest on something is looked at once, and a search that ends without one
// has proven that there is none.
//
//   height
//     4 |        +-----+         sections 2 and 3 are a valley between 1 and the wall on the right
//     2 |-----+  |  1  +-----
//     0 |  0  |--+     |2   3    slack = capacity - height - load of the pieces still to be placed
//
// What makes it fast: a section that cannot rise far enough fails at once (slack), sections that failed are asked first
// (weights), a failure that has nothing to do with the last piece undoes more than that (reasons), states that failed
// before are known again (128-bit keys), and restarts try other orders of pieces.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/pieces.h"
#include "lowtide/limit.h"

namespace lowtide {

enum class Verdict { packed, infeasible, gave_up };

// Which of the pieces that can rest on a floor is tried first. Those that change from restart to restart are the most
// robust; where many pieces must end level, as in a square cut apart, it pays to try those first, and the largest.
enum class Style { in_turn, widest, level };

struct SearchOptions {
  std::uint64_t seed = 0;
  Style style = Style::in_turn;
  bool prove = false;  // let each restart go on for longer than the one before: to end, not to be lucky
};

struct SearchResult {
  Verdict verdict = Verdict::gave_up;
  std::vector<Units> offsets;           // by piece, when packed
  std::vector<std::uint32_t> conflict;  // pieces that already do not fit together, when infeasible
  std::uint64_t nodes = 0;
};

// Gives up at once where the pieces together cover more than fifty million sections.
SearchResult search_packing(const Pieces& problem, Units capacity, const SearchOptions& options, Work& work);

}  // namespace lowtide
