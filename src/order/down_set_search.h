// down_set_search.h: is there an order that holds no more than a budget?
//
// Depth first over down-sets: sets of tasks that hold, with a task, all that must run before it. What is held depends
// on the set alone, and is submodular: the more has run, the less a task adds. So two kinds of moves lose nothing and
// are made without a choice:
//
//   a task that fits into the budget and holds no more afterwards than before
//   a climb: a task that holds more, then tasks that come behind it, until no more is held than at its start. Each must
//   come behind the last that held more, so that every set between start and end holds at least as much as the end
//
//   held
//    B  - - - - - - - - - - - - -
//            +--+
//         +--+  +--+                 from here ...
//    -----+        +---              ... to here: what could be done before can be done after
//
// Only where neither is possible does it branch. Sets that failed are known again by 128-bit keys. A search that ends
// without an order has proven that there is none.
#pragma once

#include <optional>

#include "graph/reachability.h"
#include "lowtide/limit.h"
#include "order/progress.h"

namespace lowtide {

enum class Fits { yes, no, unknown };

struct OrderSearchOptions {
  Direction direction = Direction::forwards;
  bool least_change_first = true;  // else in program order
};

struct OrderSearchResult {
  Fits fits = Fits::unknown;
  Order order;  // if it fits
};

OrderSearchResult search_order(const Tasks& tasks, const Reachability& reachability, std::int64_t budget,
                               const OrderSearchOptions& options, Work& work);

}  // namespace lowtide
