#include "trade/repeated_units.h"

#include <algorithm>

namespace lowtide {

Runs with_repeats(const Reruns& reruns, std::span<const UnitRepeat> repeats) {
  std::vector<UnitRepeat> sorted(repeats.begin(), repeats.end());
  std::ranges::stable_sort(sorted, {}, &UnitRepeat::slot);
  Runs runs;
  std::size_t next = 0;
  for (Position p = 0; p < reruns.num_ops(); ++p) {
    for (; next < sorted.size() && sorted[next].slot == p; ++next) {
      const Unit unit = sorted[next].unit;
      if (!reruns.repeatable[unit] || p > reruns.until[unit] || reruns.members[unit].back() >= p) continue;
      for (const Position member : reruns.members[unit]) runs.push_back({member, true});
    }
    runs.push_back({p, false});
  }
  return runs;
}

}  // namespace lowtide
