// side_by_side.h: many pieces of work of very different sizes, on a few threads. The one wall around oneTBB.
#pragma once

#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstddef>

namespace lowtide {

// Runs work(0), ..., work(count - 1) on `threads` threads, and returns when all have ended. 0 or more than oneTBB is
// allowed to have: as many as it is. Whoever is free takes the next: what one does must not depend on another.
template <typename Work>
void side_by_side(std::size_t count, std::size_t threads, const Work& work) {
  const std::size_t allowed = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  const std::size_t used = threads == 0 ? allowed : std::min(threads, allowed);
  tbb::task_arena(static_cast<int>(used)).execute([&] { tbb::parallel_for(std::size_t{0}, count, work); });
}

}  // namespace lowtide
