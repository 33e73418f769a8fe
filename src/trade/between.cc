#include "trade/between.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <vector>

namespace lowtide {
namespace {

constexpr std::int64_t kDense = 2000;  // of the peak: points that are closer need nothing between them

constexpr std::uint64_t kPart = 4;  // of the work, one part in so many

class Between {
 public:
  Between(const Reruns& reruns, const FrontPoint& high, const FrontPoint& low, Explorer& explorer)
      : r_(reruns), high_(high), low_(low), explorer_(explorer) {
    for (const Item item : r_.candidates) {
      if (high.choice[item] != low.choice[item]) differ_.push_back(item);
    }
  }

  void explore() {
    struct Part {
      std::size_t first, last;  // of what differs
      std::int64_t high, low;   // peaks
    };
    std::vector<Part> parts = {{0, differ_.size(), high_.peak, low_.peak}};
    while (!parts.empty()) {
      const auto [first, last, high, low] = parts.back();
      parts.pop_back();
      if (last - first < 2 || std::abs(high - low) < r_.peak / kDense) continue;
      const std::size_t middle = (first + last) / 2;
      explore_mix(differ_.size() - middle, differ_.size());
      const std::optional<Outcome> outcome = explore_mix(0, middle);
      if (!outcome) return;
      parts.push_back({first, middle, high, outcome->peak});
      parts.push_back({middle, last, outcome->peak, low});
    }
  }

 private:
  // These of what differs as in the lower one, all else as in the higher.
  std::optional<Outcome> explore_mix(std::size_t first, std::size_t last) {
    Choice choice = high_.choice;
    for (std::size_t i = first; i < last; ++i) choice[differ_[i]] = low_.choice[differ_[i]];
    return explorer_.explore(choice);
  }

  const Reruns& r_;
  const FrontPoint& high_;
  const FrontPoint& low_;
  Explorer& explorer_;
  std::vector<Item> differ_;
};

}  // namespace

void Mixes::explore(const Front& front) {
  const std::vector<FrontPoint> points = front.points();
  std::vector<std::size_t> lower;  // of two neighbours
  for (std::size_t i = 1; i < points.size(); ++i) lower.push_back(i);
  const std::uint64_t rest = work_->left() - work_->left() / kPart;
  std::ranges::stable_sort(lower, std::ranges::greater{},
                           [&](std::size_t i) { return points[i - 1].peak - points[i].peak; });
  for (const std::size_t i : lower) {
    if (work_->left() <= rest) return;
    const Pair pair{points[i - 1].cost, points[i - 1].peak, points[i].cost, points[i].peak};
    if (known_.insert(pair).second) Between(*reruns_, points[i - 1], points[i], *explorer_).explore();
  }
}

}  // namespace lowtide
