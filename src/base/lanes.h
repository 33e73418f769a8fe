// lanes.h: attempts side by side, with the answer that one after the other would give.
//
// Of the attempts that decide, the first in their order counts, however many threads there are; what comes behind it is
// stopped, and counts for nothing. So threads change how long it takes and nothing else.
//
//   attempt   0  ----------------------- decides nothing
//             1  ---------------- decides: this is the answer
//             2  ----- decides too, but behind 1
//             3  ------- is stopped
#pragma once

#include <atomic>
#include <optional>
#include <stop_token>
#include <vector>

#include "base/parallel.h"
#include "lowtide/limit.h"

namespace lowtide {

// Runs attempt(i, part) for i of [0, count), each with `steps` of the work, or an equal share where that is less.
// Gives the index of the first that answers true. Takes from the work what was spent up to there.
template <typename Attempt>
std::optional<std::size_t> first_that_decides(std::size_t count, std::size_t threads, std::uint64_t steps, Work& work,
                                              const Attempt& attempt) {
  const std::uint64_t each = std::min(steps, work.left() / std::max<std::size_t>(count, 1));
  std::vector<std::uint64_t> spent(count);
  std::vector<std::stop_source> stops(count);
  std::atomic<std::size_t> next = 0;
  std::atomic<std::size_t> first = count;  // the first so far that decides
  in_parallel(std::min(threads, count), [&](std::size_t) {
    for (std::size_t i = next++; i < first; i = next++) {
      Work part = work.part(each);
      part.stop_with(stops[i].get_token());
      const bool decides = attempt(i, part);
      spent[i] = each - part.left();
      if (!decides) continue;
      for (std::size_t known = first; i < known && !first.compare_exchange_weak(known, i);) {
      }
      for (std::size_t behind = i + 1; behind < count; ++behind) stops[behind].request_stop();
    }
  });
  for (std::size_t i = 0; i < count && i <= first; ++i) work.spend(std::min(spent[i], work.left()));
  return first < count ? std::optional<std::size_t>(first) : std::nullopt;
}

}  // namespace lowtide
