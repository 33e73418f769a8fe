#include <array>
#include <utility>
#include <vector>

#include "layout/algorithms.h"
#include "layout/bounds.h"

namespace lowtide {
namespace {

constexpr std::array kPackers = {
    Packer{"first_fit", "In the order of their first steps, each into the lowest gap that holds it.", first_fit},
    Packer{"skyline",
           "Into the lowest place that is open, the longest item that fits there (Sekiyama's best fit, ROAM's LLFB).",
           skyline},
    Packer{"greedy_by_size", "Largest first, each into the lowest gap that holds it.", greedy_by_size},
    Packer{"tightest_by_size", "Largest first, each into the gap that it fills best.", tightest_by_size},
    Packer{"longest_lived", "Longest life first, each into the gap that it fills best.", longest_lived},
};

constexpr std::array kBounds = {
    BoundAlgorithm{{"most_alive", "The most bytes alive at any step."}, most_alive},
    BoundAlgorithm{{"aligned_blocks", "The most blocks of one alignment that are taken at any step."}, aligned_blocks},
    BoundAlgorithm{{"fixed_ends", "The highest end of an item that is fixed."}, fixed_ends},
};

Result<BoundedLayout> run_by_name(std::string_view name, std::span<const LayoutItem> items, Work& work) {
  Result<NamedLayout> made = lay_out(items, {.algorithm = name}, work);
  if (!made.ok()) return made.error();
  return BoundedLayout{std::move(made->layout), made->bound};
}

}  // namespace

std::span<const Packer> packers() {
  return kPackers;
}

std::span<const BoundAlgorithm> bounds() {
  return kBounds;
}

std::span<const LayoutBound> layout_bounds() {
  static const std::vector<LayoutBound> known = [] {
    std::vector<LayoutBound> all;
    for (const BoundAlgorithm& bound : kBounds) all.push_back(bound.known_as);
    return all;
  }();
  return known;
}

std::span<const LayoutAlgorithm> layout_algorithms() {
  static const std::vector<LayoutAlgorithm> known = [] {
    std::vector<LayoutAlgorithm> all;
    const auto add = [&all](std::string_view name, std::string_view description) {
      all.push_back({name, description,
                     [name](std::span<const LayoutItem> items, Work& work) { return run_by_name(name, items, work); }});
    };
    for (const Packer& packer : kPackers) add(packer.name, packer.description);
    add("exact", "Search: the smallest arena there is, if the work allowed is enough to find it.");
    return all;
  }();
  return known;
}

}  // namespace lowtide
