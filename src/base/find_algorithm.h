// find_algorithm.h: an algorithm by its name: ours first, then those that the caller brought.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/words.h"
#include "lowtide/status.h"

namespace lowtide {

// `kind` and `besides`, names that are no algorithms' own, are for the message: E501 with all names, if there is no
// such algorithm.
template <typename Algorithm>
Result<Algorithm> find_algorithm(std::string_view kind, std::string_view name, std::span<const Algorithm> ours,
                                 std::span<const Algorithm> others, std::string_view besides = "") {
  std::string known(besides);
  for (const std::span<const Algorithm> some : {ours, others}) {
    for (const Algorithm& algorithm : some) {
      if (algorithm.name == name) return algorithm;
      known += words(known.empty() ? "" : ", ", algorithm.name);
    }
  }
  return Error{ErrorCode::unknown_algorithm,
               words("there is no ", kind, " algorithm '", name, "'; there are: ", known)};
}

}  // namespace lowtide
