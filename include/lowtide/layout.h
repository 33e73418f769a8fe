// layout.h: where each piece of memory lies.
//
// A packing problem is a set of items with a size and a half-open life [begin, end) in steps. A layout gives each an
// offset, a multiple of 64, so that no two items that are alive together share a byte. Buffers are items, and so is
// each op's workspace.
//
//   offset
//   192 +         +----+
//       |         | c  |                 a [0,2)  64 bytes at 64
//   128 +----+----+----+----+            b [0,4)  64 bytes at 0
//       |    a    |    d    |            c [2,3)  64 bytes at 128
//    64 +----+----+----+----+            d [2,4)  64 bytes at 64
//       |         b         |
//     0 +----+----+----+----+--> step    arena 192 = most live bytes, 192 at step 2
//       0    1    2    3    4
//
// This is what "greedy_by_size" makes of the case "staircase" of layout_test.cc.
//
// An algorithm is a pure function from items to a layout, known by its name: one line in src/layout/registry.cc adds
// one. lay_out() runs the one that is asked for, or several and keeps the best.
//
//   Result<NamedLayout> best = lay_out(items);
//   if (best.ok()) use(best->layout, best->algorithm);
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lowtide/limit.h"
#include "lowtide/status.h"
#include "lowtide/units.h"

namespace lowtide {

struct LayoutItem {
  StepIndex begin;  // first step at which it is alive
  StepIndex end;    // first step at which it no longer is
  Bytes size;
};

struct Layout {
  std::vector<Bytes> offsets;  // by item; 0 for items without bytes or without life
  Bytes arena;                 // the highest end of any item
};

struct LayoutAlgorithm {
  std::string_view name;
  std::string_view description;  // one sentence
  // E107 if addresses do not suffice, E403 if `work` does not.
  Result<Layout> (*run)(std::span<const LayoutItem> items, Work& work);
};

// The cheapest first.
std::span<const LayoutAlgorithm> layout_algorithms();

// E501 with the names there are, if `name` is none of them.
Result<LayoutAlgorithm> find_layout(std::string_view name);

// A layout, and the name of the algorithm that made it.
struct NamedLayout {
  Layout layout;
  std::string_view algorithm;
};

// The layout by the algorithm of that name, whatever work it takes. With "auto", the smallest that the registered
// algorithms find, of equals the first: each may use what is left of a billion steps of work, and the first that needs
// no more than the most bytes alive at a time ends the search.
Result<NamedLayout> lay_out(std::span<const LayoutItem> items, std::string_view algorithm = "auto");

}  // namespace lowtide
