// windows.h: a step with several turns as several steps in a row: micro-batches whose gradients are added up, or two
// models that are trained one after the other.
//
//   waiting                                bytes that ops of a forward pass made and that later ops need
//      |      __            __
//      |    _-  -_        _-  -_
//      |  _-      -_    _-      -_
//      +-----------------------------> order      (case "MicroBatches" of windows_test.cc)
//      |  window     |  window      |
//
// A window ends where few such bytes wait, and has a turn of its own. What is made before it and needed behind it is
// there all along; what is made in it and needed behind it is kept. So what runs again within one window changes
// nothing in another: the peak of the step is the highest of its windows, and their costs add up.
#pragma once

#include <vector>

#include "trade/reruns.h"
#include "trade/trades.h"

namespace lowtide {

struct Window {
  Position begin;  // its ops, by their positions in the step
  Position end;    // behind the last
  Reruns reruns;   // its first op stands for those before the window: it makes what ends in the window

  // Of the step, for runs of `reruns`.
  Runs spread(const Runs& runs) const;
};

// At least two, which follow one another and are all of the step; none if the step has one turn only.
std::vector<Window> windows_of(const Reruns& step);

// Of trades of each window, those of the step: for every peak that one of them has, the cheapest in each window that
// is no higher. `trades[i]` are those of window i as best_of() gives them, its runs spread.
Trades together(const std::vector<Trades>& trades);

}  // namespace lowtide
