// algorithms.h: every order algorithm, one function each; registry.cc gives them names.
#pragma once

#include "lowtide/order.h"

namespace lowtide {

Result<Order> program_order(const Graph& graph);

}  // namespace lowtide
