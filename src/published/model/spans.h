// spans.h: at which steps a task can run, and at which a buffer can be or must be held, in any order. Of MODeL.
//
// There are as many steps as tasks. A task runs after the longest chain of tasks that leads to it and before the
// longest that it leads to; if no two tasks share a step, even after all of its ancestors and before all of its
// descendants. A buffer may be held from the first step that can make it to the last that can use it; it must be from
// the step after the last that can make it to the first at which all of its users can have run, or to the end if kept.
//
//   0 -> 1 -> 3      task   several a step   one a step       buffer a, made by 0, used by 1 and 2
//   0 -> 2 -> 3        0        [0, 2)         [0, 1)           may be held [0, 3), must be [1, 2)
//                      1        [1, 3)         [1, 3)
//                      2        [1, 3)         [1, 3)         buffer b, made by 1, used by 3
//                      3        [2, 4)         [3, 4)           may be held [1, 4), must be [3, 4)
//
// (Test "Diamond" of model_program_test.cc; the buffers with one task a step.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "order/tasks.h"

namespace lowtide {

enum class StepWidth : std::uint8_t {
  single,  // one task a step: an order as it is
  multi,   // any number of tasks that do not depend on each other, as if there were a stream for each
};

struct StepRange {
  std::size_t begin;
  std::size_t end;

  bool contains(std::size_t step) const { return begin <= step && step < end; }
  std::size_t size() const { return end - begin; }
  bool operator==(const StepRange&) const = default;
};

struct StepSpans {
  std::vector<StepRange> run;     // by task: from as soon to as late as possible
  std::vector<StepRange> useful;  // by buffer: the maximal useful lifetime
  std::vector<StepRange> needed;  // by buffer: it has been made and will still be used; may be empty
};

StepSpans to_spans(const Tasks& tasks, StepWidth width);

}  // namespace lowtide
