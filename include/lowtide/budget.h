// budget.h: how much memory or time may be used, as people write it.
//
//   "6GiB"  "800MB"  "1.5 GB"  "123B"      bytes: decimal units are powers of 1000, binary ones of 1024
//   "10ms"  "1.5s"   "250 us"              time
//   "16GB/s"                               a rate
//   "60%"   "12.5 %"                       a share of what eager needs: see PlanOptions in plan.h
//
// Amounts are exact: "1.5 GB" is 1500000000 bytes, and "0.3 KiB" is refused because it is no whole number of bytes. A
// budget is above 0 and says its unit: "60" may be meant as MiB or as a share, and is refused.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "lowtide/status.h"
#include "lowtide/units.h"

namespace lowtide {

// A part of a whole that is known only later, in (0, 1].
struct Share {
  double of_whole;
};

using Budget = std::variant<Bytes, Share>;

// The budget in bytes, where `whole` is what a share is of; rounded down. E503 if the share is not in (0, 1].
Result<Bytes> resolve(const Budget& budget, Bytes whole);

// A number, then B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB or PiB; a number alone is bytes. E502 says what is wrong.
Result<Bytes> parse_bytes(std::string_view text);

// An amount of memory: "60%" is a share (E503 if it is not in (0, 1]), anything else bytes with their unit. E502 says
// what is wrong, and what may have been meant.
Result<Budget> parse_budget(std::string_view text);

// A number, then ns, us, ms, s or min. E502 says what is wrong.
Result<Nanos> parse_duration(std::string_view text);

// The same for a budget of time, which is above 0.
Result<Nanos> parse_time_budget(std::string_view text);

// Bytes a second, above 0: an amount of bytes, then "/s". E502 says what is wrong.
Result<Bytes> parse_rate(std::string_view text);

// "6.00 GiB", for messages and reports; exact below 1 KiB ("123 B").
std::string format_bytes(Bytes bytes);

}  // namespace lowtide
