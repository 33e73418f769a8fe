#include "lowtide/link.h"

namespace lowtide {
namespace {

Nanos time_for(Bytes size, Bytes per_second, Nanos latency) {
  __extension__ using Wide = unsigned __int128;
  constexpr Wide kSecond = 1'000'000'000;
  if (per_second == Bytes(0)) return Nanos::max();
  const Wide nanos = (size.count() * kSecond + per_second.count() - 1) / per_second.count();
  return nanos > Nanos::max().count() ? Nanos::max() : latency + Nanos(static_cast<std::uint64_t>(nanos));
}

}  // namespace

Nanos store_time(const Link& link, Bytes size) {
  return time_for(size, link.store_per_second, link.latency);
}

Nanos load_time(const Link& link, Bytes size) {
  return time_for(size, link.load_per_second, link.latency);
}

}  // namespace lowtide
