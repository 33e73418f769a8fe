// brute_force.h: the smallest arena of a few items, by trying every order of stacking them.
#pragma once

#include <optional>
#include <span>

#include "lowtide/layout.h"

namespace lowtide {

// Every packing can be pushed down until each item lies at the bottom or on another, and is then found by stacking the
// items in the order of their offsets. Nothing if fixed items are in each other's way.
std::optional<Bytes> smallest_arena(std::span<const LayoutItem> items);

}  // namespace lowtide
