// timetable.h: when the transfers of chosen absences are issued and waited for.
//
// A run of the step with clocks. A store begins right behind the last use; memory is free once it is over, and compute
// waits for it only where the bytes are needed. A load begins as late as it stays hidden, if there is room from then on
// to its use, and is waited for at the use:
//
//   compute   | w |   |   |   |   |   |   |   | r |
//   link          |-- store --|       |- load -|
//   memory    ================        ============
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lowtide/link.h"
#include "lowtide/units.h"
#include "swap/absences.h"
#include "swap/tenants.h"

namespace lowtide {

// When what happens to a tenant around one absence: issued before a step, and over before a step.
struct Times {
  std::size_t issue;
  std::size_t wait;
};

struct Trip {
  std::uint32_t absence;
  bool stores = false;  // else the tier has the content already
  bool loads = false;   // else nobody needs it again in this run
  Times store = {};
  Times load = {};
};

struct Issued {
  std::uint32_t trip;
  bool load;
};

struct Timetable {
  std::vector<Trip> trips;     // of each chosen absence, in the order of the absences
  std::vector<Issued> issued;  // all stores and loads, in the order of the link
  Nanos time;                  // of the whole step
};

// `need` has the bytes that each step needs with all chosen tenants away, no more than `limit`; `costs` has its time.
Timetable make_timetable(const Tenants& tenants, std::span<const Absence> absences, const std::vector<bool>& chosen,
                         const Link& link, std::span<const std::int64_t> need, std::int64_t limit,
                         std::span<const Nanos> costs);

}  // namespace lowtide
