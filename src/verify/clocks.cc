#include "verify/clocks.h"

#include <algorithm>

namespace lowtide {
namespace {

constexpr std::uint64_t kNanosInSecond = 1'000'000'000;

// Rounded up. Whole seconds and the rest are counted apart; the rest takes less than a second.
Nanos time_at_rate(Bytes size, Bytes per_second) {
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t rate = per_second.count();
  const std::uint64_t seconds = size.count() / rate;
  const Wide rest = Wide{size.count() % rate} * kNanosInSecond;
  const Nanos rest_nanos(static_cast<std::uint64_t>(rest / rate + (rest % rate == 0 ? 0 : 1)));
  if (seconds > Nanos::max().count() / kNanosInSecond) return Nanos::max();
  return Nanos(seconds * kNanosInSecond) + rest_nanos;
}

}  // namespace

Clocks::Clocks(const Plan& plan) : plan_(plan), free_(plan.tiers.size()) {}

Nanos Clocks::begin(Nanos& free, Nanos duration) const {
  return free = std::max(free, now_) + duration;
}

Nanos Clocks::begin_store(std::uint32_t tier, Bytes size) {
  const Link& link = plan_.tiers[tier - 1].link;
  return begin(free_[tier - 1].to_store, link.latency + time_at_rate(size, link.store_per_second));
}

Nanos Clocks::begin_load(std::uint32_t tier, Bytes size) {
  const Link& link = plan_.tiers[tier - 1].link;
  Free& free = free_[tier - 1];
  return begin(link.duplex ? free.to_load : free.to_store, link.latency + time_at_rate(size, link.load_per_second));
}

}  // namespace lowtide
