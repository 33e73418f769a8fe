#include "overlaps.h"

#include <algorithm>
#include <iterator>

namespace lowtide::torch_runtime {
namespace {

bool begins_earlier(const Reach& a, const Reach& b) {
  return a.begin < b.begin;
}

// Of what began earlier, the one that reaches farthest.
void extend(Reach* farthest, const Reach& reach) {
  if (reach.end > farthest->end) *farthest = reach;
}

}  // namespace

void Overlaps::set_lasting(std::vector<Reach> lasting) {
  if (lasting == given_) return;
  given_ = std::move(lasting);
  sorted_ = given_;
  std::sort(sorted_.begin(), sorted_.end(), begins_earlier);
}

std::optional<std::pair<int, int>> Overlaps::find(std::vector<Reach> passing) {
  std::sort(passing.begin(), passing.end(), begins_earlier);
  all_.clear();
  std::merge(sorted_.begin(), sorted_.end(), passing.begin(), passing.end(), std::back_inserter(all_), begins_earlier);
  Reach any;
  Reach written;
  for (const Reach& reach : all_) {
    if (reach.begin == reach.end) continue;
    if (reach.begin < written.end) return std::pair(written.buffer, reach.buffer);
    if (reach.written && reach.begin < any.end) return std::pair(reach.buffer, any.buffer);
    extend(&any, reach);
    if (reach.written) extend(&written, reach);
  }
  return std::nullopt;
}

}  // namespace lowtide::torch_runtime
