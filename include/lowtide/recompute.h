// recompute.h: what is dropped and made again, to need less memory for some more time.
//
// An algorithm is known by its name: one line in src/trade/registry.cc adds one, and plan(), the Python package and
// the tests find it there. A caller may bring its own: see algorithms.h. Each finds ways to run a step that need less
// memory and take longer; a budget picks one of them.
//
//   order   0 a   1 b(a)   2 c(b)   3 d(c)   4 e(b)            b is held from 1 to 4
//   steps   0 a   1 b(a)   2 c(b)   3 d(c)   1 again   4 e(b)  or from 1 to 2, and again for 4
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "lowtide/graph.h"
#include "lowtide/limit.h"
#include "lowtide/status.h"

namespace lowtide {

using Steps = std::vector<OpId>;  // every op, those that run again several times

struct RecomputeAlgorithm {
  std::string_view name;
  std::string_view description;  // one sentence
  // Whose first runs are in the order given. What runs again makes all results of the op again, in further memory;
  // verify.h says which ops may.
  std::function<Result<std::vector<Steps>>(const Graph& graph, std::span<const OpId> order, Work& work)> run;
};

// "auto" first, then those to compare with.
std::span<const RecomputeAlgorithm> recompute_algorithms();

}  // namespace lowtide
