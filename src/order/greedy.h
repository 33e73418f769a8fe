// greedy.h: orders built one task at a time, by a look at what each would open and close. Near-linear.
#pragma once

#include "order/progress.h"

namespace lowtide {

// What is looked at first. None of these is safe on every graph, and each is best on some.
enum class Greed {
  change,        // by how much more is held afterwards; ties by how much is held while it runs
  change_alone,  // by how much more is held afterwards, and nothing else: LESCEA (Han et al.), as ROAM compares with it
  needed,        // how much is held while it runs
  climb_least,   // in program order while that holds no more; otherwise by how much more is held afterwards
  climb_in_turn,  // in program order while that holds no more; otherwise in program order too
  latest,         // the last in program order: as far from it as can be
};

Order greedy_order(const Tasks& tasks, Greed greed, Direction direction);

}  // namespace lowtide
