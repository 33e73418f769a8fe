// batch_planner.h: an answer for each batch as it comes: what to drop, and how high memory will rise.
//
//   BatchPlanner planner(12);
//   BatchPlan plan = planner.plan({8, 384}, /*room=*/Bytes(2ull << 30));   // knows nothing yet: everything is dropped
//   planner.observe(...);                                                  // what happened
//
// Batches of nearly the same extents share a plan. A plan that is taken from the cache was checked against what is
// known about this very batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "lowtide/adapt.h"
#include "lowtide/estimator.h"

namespace lowtide {

struct BatchPlan {
  std::vector<bool> dropped;
  Bytes likely_peak;  // above what was there when the batch came
  Bytes safe_peak;    // the same with margins
  Nanos again;
  bool known = false;   // false: nothing like it was seen, everything is dropped, and the figures are guesses
  bool tested = false;  // see Prediction
  bool extrapolates = false;
  bool from_cache = false;
};

struct BatchPlannerOptions {
  EstimatorOptions estimator = {};
  std::size_t cached_plans = 256;
  double unknown_leverage = 1e5;  // from here on nothing is known
};

class BatchPlanner {
 public:
  explicit BatchPlanner(std::size_t blocks, BatchPlannerOptions options = {});

  void observe(const Observation& observation);

  // How high the batch rose that `plan` said rises to its `likely_peak`. Overshoot is set aside from then on, less with
  // each batch.
  void learn_peak(Bytes likely_peak, Bytes actual_peak);

  // The fastest plan with a safe peak of at most `room`; if there is none, that with the smallest that was found.
  // `passing` bytes besides are there until the model returns only, such as the results of the batch before.
  BatchPlan plan(std::span<const std::uint64_t> extents, Bytes room, Bytes passing = {});

  // The likely peak if these blocks are dropped.
  Bytes likely_peak(std::span<const std::uint64_t> extents, const std::vector<bool>& dropped, Bytes passing) const;

  // The smallest likely peak of any plan. Takes some times as long.
  Bytes least_peak(std::span<const std::uint64_t> extents) const;

  const Estimator& estimator() const { return estimator_; }
  std::size_t cached_plans() const { return cache_.size(); }

 private:
  using Key = std::vector<std::uint64_t>;
  struct Entry {
    std::vector<bool> dropped;
    std::list<Key>::iterator age;
  };
  const std::vector<bool>* find(const Key& key);
  void insert(const Key& key, std::vector<bool> dropped);

  BatchPlannerOptions options_;
  Estimator estimator_;
  // As a share of what was likely. What the first plans overshoot by is not known.
  double overshoot_ = 0.02;
  std::map<Key, Entry> cache_;
  std::list<Key> by_age_;  // the oldest first
};

}  // namespace lowtide
