// gains.h: what the peak would be lower by, if those who hold it did not.
#pragma once

#include <span>

#include "explain/groups.h"
#include "explain/scene.h"
#include "lowtide/explain.h"

namespace lowtide {

// Fills in what recomputing and swapping each group would gain, where that can be done and gains something.
void add_gains(const Scene& scene, std::span<Group> groups, Bytes swap_per_second);

// The planned buffers that the op at the peak reads and writes.
struct Operands {
  Bytes size;
  Bytes peak_without;  // the largest total without them
};
Operands operands_at_peak(const Scene& scene);

// The largest total, did gradients that the step makes and the caller keeps end with their last use in the step.
Bytes peak_without_kept_gradients(const Scene& scene);

}  // namespace lowtide
