// best_first.h: the search of MAGIS: from the step as it is, by the rules, best states first.
//
// A state is better if it keeps the limit and the other does not; of two that do, the one that needs less of what is
// not limited; of two that do not, the one that is nearer to the limit. The best state that waits is changed in every
// way, and what is new and not much worse than the best so far waits in its turn.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fission/splits.h"
#include "lowtide/limit.h"
#include "lowtide/order.h"
#include "search/rules.h"

namespace lowtide {

struct StateSearchOptions {
  // One of the two is limited, and the other is to be low. Bytes without resident ones; time of the whole step.
  std::optional<std::int64_t> memory = {};
  std::optional<std::int64_t> time = {};
  bool exact = true;  // parts have the bits of the whole ops
  RuleOptions rules = {};
  double relaxed = 1.1;     // states up to so much worse than the best are looked at
  bool reorders = false;    // each state is put in a better order: see reschedule.h
  std::size_t threads = 1;  // changes how long it takes, never what is found
};

struct StateSearchCounts {
  std::uint64_t popped = 0;
  std::uint64_t made = 0;      // changes that could be
  std::uint64_t distinct = 0;  // of those, graphs that were not known; each was followed to its peak
};

struct StateSearchResult {
  Splitting splitting;
  Figures figures;
  StateSearchCounts counts;
};

// From that order on, as long as there is work left. Deterministic, but for a limit in time.
StateSearchResult search_best_first(const Graph& graph, std::span<const OpId> order, const StateSearchOptions& options,
                                    Work& work);

// A state that no other beats in both.
struct FoundState {
  std::int64_t cost = 0;  // the time of the step
  std::int64_t peak = 0;
  Splitting splitting;
};

// All such states that are met on the way to ever lower memory limits, from the fastest to the smallest: each search
// goes on from what the one before found. The limits of the options do not count: what is found depends on the graph
// and the work alone.
std::vector<FoundState> search_front(const Graph& graph, std::span<const OpId> order, const StateSearchOptions& options,
                                     Work& work);

}  // namespace lowtide
