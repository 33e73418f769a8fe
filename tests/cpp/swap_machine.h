// swap_machine.h: the fastest plan of a tiny step in which ops may run again and contents may leave memory, by trying
// them all.
#pragma once

#include <cstdint>
#include <optional>

#include "lowtide/graph.h"
#include "lowtide/link.h"

namespace lowtide {

// The least time with which some plan holds no more than `peak` bytes, with at most two transfers under way or waiting
// for the link at once; nothing if none does. All buffers are planned.
std::optional<std::int64_t> least_time_within(const Graph& graph, const Link& link, std::int64_t peak);

}  // namespace lowtide
