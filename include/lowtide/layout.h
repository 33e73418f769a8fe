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
// one, and a caller may bring its own. lay_out() runs the one that is asked for, or several and keeps the best.
//
//   Result<NamedLayout> best = lay_out(items);
//   if (best.ok()) use(best->layout, best->algorithm);
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
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
  Bytes alignment = kAlignment;     // its offset is a multiple of this
  std::optional<Bytes> fixed = {};  // its offset, if that is given: also such a multiple
  std::size_t tier = 0;             // the memory it lies in: see lay_out_tiers()
};

struct Layout {
  std::vector<Bytes> offsets;  // by item; 0 for items without bytes or without life
  Bytes arena;                 // the highest end of any item
};

struct BoundedLayout {
  Layout layout;
  Bytes bound = {};  // proven: no arena is smaller; 0 from algorithms that prove nothing
};

struct LayoutAlgorithm {
  std::string_view name;
  std::string_view description;  // one sentence
  std::function<Result<BoundedLayout>(std::span<const LayoutItem> items, Work& work)> run;
};

// The cheapest first.
std::span<const LayoutAlgorithm> layout_algorithms();

struct LayoutBound {
  std::string_view name;
  std::string_view description;  // one sentence
};

// Lower bounds on any arena. The highest of them counts; searches may prove more.
std::span<const LayoutBound> layout_bounds();

struct LayoutOptions {
  std::string_view algorithm = "auto";           // or the name of one
  std::span<const LayoutAlgorithm> others = {};  // besides ours, to be asked for by name; what they make is verified
  std::uint64_t steps = 15'000'000'000;          // of work, about a nanosecond each
  std::optional<Bytes> capacity = {};            // an arena that is small enough: no smaller one is looked for
  std::size_t threads = 1;                       // changes how long it takes, never the answer
  // Besides: the best that was found by then. The answer is then no longer a function of the items alone.
  std::optional<std::chrono::milliseconds> time_limit = {};
};

struct NamedLayout {
  Layout layout;
  Bytes bound;                 // proven: no arena is smaller
  std::string_view algorithm;  // the one that made the layout
};

// The layout by the algorithm that is asked for. With "auto" the best that is found with the work allowed: the cheap
// algorithms first, then searches below what they reached, until the arena is no larger than the bound or the capacity.
//
// E501 if there is no such algorithm, E2xx if the layout of one of `others` is wrong, E504 if an item makes no sense,
// E107 if the sizes are beyond all addresses; with a capacity E303 if it is proven too small (the culprits are items
// that already do not fit together), and E403 if no layout below it was found with the work allowed. Without a
// capacity, E403 if the algorithm asked for ran out of work.
Result<NamedLayout> lay_out(std::span<const LayoutItem> items, const LayoutOptions& options = {});

// A memory with addresses of its own: that of a device, say, and that of its host.
struct MemoryTier {
  std::string name;
  std::optional<Bytes> capacity = {};  // none: the smallest arena that can be found
};

struct TieredLayout {
  std::vector<Bytes> offsets;       // by item, in the arena of its tier
  std::vector<NamedLayout> arenas;  // by tier; offsets of other tiers' items are 0
};

// Each tier's items in an arena of its own, each with the work of `options`; a capacity there is not looked at.
//
// E504 if an item is in none of the tiers, and the errors of lay_out() for the first tier that has one, with its name.
Result<TieredLayout> lay_out_tiers(std::span<const LayoutItem> items, std::span<const MemoryTier> tiers,
                                   const LayoutOptions& options = {});

}  // namespace lowtide
