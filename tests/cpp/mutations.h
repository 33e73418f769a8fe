// mutations.h: the ways in which a plan is changed to see whether the change is noticed.
#pragma once

#include <random>
#include <string_view>

#include "draft.h"
#include "lowtide/graph.h"

namespace lowtide {

struct Mutation {
  std::string_view name;
  int weight;  // how often it is chosen, beside the others
  // Changes `draft`, or answers false where it cannot. The change may well leave the plan right.
  bool (*apply)(const Graph& graph, Draft& draft, std::mt19937_64& random);
};

const Mutation& any_mutation(std::mt19937_64& random);

}  // namespace lowtide
