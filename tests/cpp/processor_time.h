// processor_time.h: how long this process has computed. Limits are in this, which other processes do not change much.
#pragma once

#include <ctime>

namespace lowtide {

inline double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

}  // namespace lowtide
