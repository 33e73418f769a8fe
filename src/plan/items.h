// items.h: what a graph in a given order has to lay out.
#pragma once

#include <span>
#include <vector>

#include "lowtide/layout.h"
#include "lowtide/lifetimes.h"

namespace lowtide {

// The places of planned buffers by the ids of their first ones, then the workspaces by step; those without bytes are
// left out of the workspaces.
std::vector<LayoutItem> items_of(const Graph& graph, std::span<const OpId> order, const Lifetimes& lifetimes);

}  // namespace lowtide
