// bounds.h: bytes below which no order has its peak.
//
// Each looks at one task at a time and says what any order holds while it runs; the most over all tasks counts.
//
//   operands       what the task itself touches
//   must_be_alive  and what was made before it and is used after it, whatever the order
//   min_cut        and the least that the tasks between can leave behind: exact for one task (min_cut.h), unless it may
//                  make a result over one of several operands
//
// Each is at least as high as the one before it. The peak itself may be higher: the best sets for two tasks need not
// be on one way. One more looks at two tasks:
//
//   either_first   of two tasks that make something for a third, one runs after the other, and what that made is held
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/limit.h"
#include "lowtide/order.h"
#include "order/tasks.h"

namespace lowtide {

std::int64_t operands(const Tasks& tasks, Work& work);

// Blocks of 512 tasks are swept, those first that hold the most in program order: none holds more than it does there,
// so the rest is left out once nothing higher can come. Each block takes needs and uses times a few nanoseconds, and
// 128 bytes a task. Work that ends early leaves the most that was found.
std::int64_t must_be_alive(const Tasks& tasks, Work& work);

// By task. Those for which the work was not enough have their operands alone.
std::vector<std::int64_t> must_be_alive_by_task(const Tasks& tasks, Work& work);

// From program order: see min_cut_from(), which takes a better one.
std::int64_t min_cut(const Tasks& tasks, Work& work);

// Of all pairs, those that hold the most in program order, as far as one block of 512 tasks goes. 0 if there is none.
std::int64_t either_first(const Tasks& tasks, Work& work);

struct PeakBound {
  OrderBound known_as;
  std::int64_t (*run)(const Tasks& tasks, Work& work);  // in bytes
};
std::span<const PeakBound> peak_bounds();

}  // namespace lowtide
