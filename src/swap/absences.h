// absences.h: the stretches in which a tenant could be away, what its transfers would take, and which are chosen so
// that the rest fits.
//
//   step        0    1    2    3    4    5
//   a           w    r    .    .    r    .      absence [2, 4): a store and a load
//   weight      .    r    .    .    .    w      [2, 5): a load alone, its home still has the content
//                                               [6, 1): round the step's end; a load, and a store of what was written
//
// Every step has an excess: the bytes that it needs above the limit. Absences are taken by how much of that they cover
// for the time of the link, those first that leave time for their transfers; then every one that turned out needless is
// given up again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lowtide/link.h"
#include "swap/tenants.h"

namespace lowtide {

struct Absence {
  std::uint32_t tenant;
  std::size_t begin;  // the first step without it: behind a use
  std::size_t end;    // the step of its next use; below `begin` where that is in the next run of the step

  bool wraps() const { return end < begin; }
};

// In the order of their begin by tenant, the one that wraps last. An inner absence of a resident tenant needs that one.
std::vector<Absence> absences_of(const Tenants& tenants);

// What moves around each absence of one tenant that `chosen` has: visit(i, stores, loads) with i in `own`. A store is
// needed where the tier has other content, a load where somebody needs it again in this run. What wraps loads at the
// start of the run, and stores at its end.
template <typename Chosen, typename Visit>
void each_trip(const Tenants& tenants, std::span<const Absence> own, const Chosen& chosen, const Visit& visit) {
  const std::uint32_t tenant = own.front().tenant;
  bool stored = tenants.resident[tenant] && tenants.initial[tenant];
  std::size_t next = 0;
  for (const TenantUse& use : tenants.uses[tenant]) {
    stored &= !use.writes;
    if (next == own.size() || own[next].begin != use.step + 1) continue;
    if (chosen(next)) {
      visit(next, !stored, !own[next].wraps() || tenants.initial[tenant]);
      stored = true;
    }
    ++next;
  }
}

// By absence: whether it is taken. `excess` has the bytes above the limit, by step, and `costs` the time of each. None
// if there is too much in memory with all of them away.
std::optional<std::vector<bool>> choose_absences(const Tenants& tenants, std::span<const Absence> absences,
                                                 const Link& link, std::vector<std::int64_t> excess,
                                                 std::span<const Nanos> costs);

}  // namespace lowtide
