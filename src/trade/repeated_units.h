// repeated_units.h: runs of a step in which given units run again at given places.
#pragma once

#include <span>

#include "trade/reruns.h"

namespace lowtide {

struct UnitRepeat {
  Position slot;  // right before the first run of this op
  Unit unit;
};

// Every op once, in the given order, and these units besides: by slot, and in the order in which they come within one.
// A unit that cannot run again there is left out: whoever wanted what it makes takes what is there.
Runs with_repeats(const Reruns& reruns, std::span<const UnitRepeat> repeats);

}  // namespace lowtide
