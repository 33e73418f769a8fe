#include <array>
#include <string>

#include "graph/words.h"
#include "layout/algorithms.h"
#include "lowtide/layout.h"

namespace lowtide {
namespace {

constexpr std::array kAlgorithms = {
    LayoutAlgorithm{"first_fit", "In the order of their first steps, each into the lowest gap that holds it.",
                    first_fit},
    LayoutAlgorithm{"greedy_by_size", "Largest first, each into the lowest gap that holds it.", greedy_by_size},
};

}  // namespace

std::span<const LayoutAlgorithm> layout_algorithms() {
  return kAlgorithms;
}

Result<LayoutAlgorithm> find_layout(std::string_view name) {
  std::string known;
  for (const LayoutAlgorithm& algorithm : kAlgorithms) {
    if (algorithm.name == name) return algorithm;
    known += words(known.empty() ? "" : ", ", algorithm.name);
  }
  return Error{ErrorCode::unknown_algorithm, words("there is no layout algorithm '", name, "'; there are: ", known)};
}

}  // namespace lowtide
