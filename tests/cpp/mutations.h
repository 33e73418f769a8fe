// mutations.h: the ways in which a plan is changed to see whether the change is noticed.
#pragma once

#include <random>
#include <span>
#include <string_view>

#include "draft.h"
#include "lowtide/graph.h"

namespace lowtide {

using Random = std::mt19937_64;

struct Mutation {
  std::string_view name;
  int weight;  // how often it is chosen, beside the others
  // Changes `draft`, or answers false where it cannot. The change may well leave the plan right.
  bool (*apply)(const Graph& graph, Draft& draft, Random& random);
};

std::span<const Mutation> mutations();           // of any plan
std::span<const Mutation> transfer_mutations();  // of one with tiers and transfers
std::span<const Mutation> part_mutations();      // of one that runs ops in parts

const Mutation& any_of(std::span<const Mutation> mutations, Random& random);

// What mutations end with: mostly, the figures are right again.
void maybe_restate(const Graph& graph, Draft& draft, Random& random);
// And lives follow: only dependencies can be broken, or addresses that were free in the old order.
void follow(const Graph& graph, Draft& draft, Random& random);

bool chance(Random& random, double p);

}  // namespace lowtide
