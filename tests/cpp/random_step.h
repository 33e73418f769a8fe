// random_step.h: small training steps whose ops can run in parts.
#pragma once

#include <cstdint>

#include "lowtide/graph.h"

namespace lowtide {

// A pass forward and one back over random wiring. Most operands are cut along rows or columns, some not.
Graph random_step(std::uint32_t seed);

}  // namespace lowtide
