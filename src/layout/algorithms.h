// algorithms.h: every layout algorithm, one function each; registry.cc gives them names.
#pragma once

#include "lowtide/layout.h"

namespace lowtide {

Result<Layout> greedy_by_size(std::span<const LayoutItem> items);

}  // namespace lowtide
