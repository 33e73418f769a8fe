#include <array>

#include "layout/algorithms.h"
#include "layout/bounds.h"

namespace lowtide {
namespace {

constexpr std::array kPackers = {
    Packer{{"first_fit", "In the order of their first steps, each into the lowest gap that holds it."}, first_fit},
    Packer{{"skyline", "Into the lowest place that is open, the longest item that fits there (Sekiyama's best fit)."},
           skyline},
    Packer{{"greedy_by_size", "Largest first, each into the lowest gap that holds it."}, greedy_by_size},
    Packer{{"tightest_by_size", "Largest first, each into the gap that it fills best."}, tightest_by_size},
    Packer{{"longest_lived", "Longest life first, each into the gap that it fills best (LLFB)."}, longest_lived},
};

constexpr std::array kReferences = {
    Reference{{"sekiyama_program", "The integer program of Sekiyama et al., as they write it, solved by HiGHS."},
              sekiyama_program},
    Reference{{"model_program", "The address constraints of MODeL, with bounds as tight as can be, solved by HiGHS."},
              model_program},
};

constexpr std::array kBounds = {
    BoundAlgorithm{{"most_alive", "The most bytes alive at any step."}, most_alive},
    BoundAlgorithm{{"aligned_blocks", "The most blocks of one alignment that are taken at any step."}, aligned_blocks},
    BoundAlgorithm{{"fixed_ends", "The highest end of an item that is fixed."}, fixed_ends},
};

}  // namespace

std::span<const Packer> packers() {
  return kPackers;
}

std::span<const Reference> references() {
  return kReferences;
}

std::span<const BoundAlgorithm> bounds() {
  return kBounds;
}

std::span<const LayoutAlgorithm> layout_bounds() {
  static const std::vector<LayoutAlgorithm> known = [] {
    std::vector<LayoutAlgorithm> all;
    for (const BoundAlgorithm& bound : kBounds) all.push_back(bound.known_as);
    return all;
  }();
  return known;
}

std::span<const LayoutAlgorithm> layout_algorithms() {
  static const std::vector<LayoutAlgorithm> known = [] {
    std::vector<LayoutAlgorithm> all;
    for (const Packer& packer : kPackers) all.push_back(packer.known_as);
    all.push_back({"exact", "Search: the smallest arena there is, if the work allowed is enough to find it."});
    for (const Reference& reference : kReferences) all.push_back(reference.known_as);
    return all;
  }();
  return known;
}

}  // namespace lowtide
