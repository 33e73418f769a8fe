// link.h: the way between memory and a tier behind it, and how long a transfer takes there.
//
// Compute has a clock, and so has each link. A transfer begins when it is issued and the link is free; a step that
// waits for it begins no earlier than it ends:
//
//   compute   | op 0 | op 1 | op 2 |  waits  | op 3 |        load issued before op 1, waited for before op 3
//   link             |---------- load -------|
//
// A link takes one transfer after another, in the order of their issue. A duplex one has a clock for each direction.
#pragma once

#include "lowtide/units.h"

namespace lowtide {

struct Link {
  Bytes store_per_second;  // above 0
  Bytes load_per_second;
  Nanos latency = {};   // of each transfer, whatever its size
  bool duplex = false;  // stores and loads do not wait for each other

  bool operator==(const Link&) const = default;
};

// The latency, and then the bytes at the link's rate, rounded up to a nanosecond.
Nanos store_time(const Link& link, Bytes size);
Nanos load_time(const Link& link, Bytes size);

}  // namespace lowtide
