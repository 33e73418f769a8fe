// training_graph.h: training steps of any size, with the shape that makes them hard to plan.
//
//   forward     x -> norm -> linear -> gelu -> dropout -> linear -> + -> x'     a layer; x' is the next layer's x
//                \__________________________________________________/
//   backward    the layers from the last to the first: each reads what its forward saved, adds to the gradient of the
//               residual branch in place, and makes the gradients of its five parameters
//   optimizer   one op counts the step; one for each parameter reads its gradient, and changes it and its two moments
//   in
//               place
//
// Dropout draws random numbers, so all of them keep their order; linear ops need workspace; the widths of layers
// differ. 19 ops and 55 reads a layer.
#pragma once

#include <cstddef>

#include "lowtide/graph.h"

namespace lowtide {

// A step of exactly `ops` ops, at least 40; the same graph for the same number.
Graph training_graph(std::size_t ops);

}  // namespace lowtide
