// segments.h: the cheapest choice within a budget, put together from segments.
//
// Before the turn, boundaries are where few items cross from earlier to later ops: between the layers of a network. In
// the segment between two boundaries, or in a few segments together, a choice from a library may be taken; what crosses
// the end of them stays. For each such *option* the step is followed exactly with all other segments kept, and gives
// three numbers: the cost, the bytes that stay until the segment's turn comes late, and the most that is held while its
// ops run, early and late, above what the segments before it leave. A dynamic program then picks options from the first
// boundary to the last:
//
//   least cost[boundary][bytes that stay so far],    if  bytes so far + most held in the option  <=  budget
//
// What it picks is only nearly additive: whoever takes it evaluates it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lowtide/limit.h"
#include "trade/drops.h"
#include "trade/part_evaluation.h"

namespace lowtide {

class SegmentProgram {
 public:
  // Between two boundaries are at least `least_ops` ops: with more, options span more of the step.
  SegmentProgram(const Reruns& reruns, std::span<const Choice> library, Position least_ops, Work& work);

  std::size_t num_segments() const { return bounds_.size() - 1; }

  // The choice of least cost whose peak is about `budget` at most; nothing if there is none.
  std::optional<Choice> cheapest_within(std::int64_t budget, Work& work) const;

 private:
  struct Option {
    std::int64_t cost = 0;
    std::int64_t stays = 0;  // bytes
    std::int64_t most = 0;   // bytes
    std::vector<Item> dropped = {};
    std::vector<Item> kept = {};
  };

  void find_segments();
  EvaluatedPart part_of(std::size_t first, std::size_t last, std::span<const Item> items) const;
  void find_options(std::span<const Choice> library, Work& work);
  std::vector<Option> options_of(std::size_t first, std::size_t last, std::span<const Choice> library, Work& work);

  const Reruns& r_;
  PartEvaluation evaluation_;
  std::vector<Position> bounds_;                   // from 0 to the turn
  std::vector<std::uint32_t> segment_of_item_;     // by item made early
  std::vector<std::uint32_t> segment_of_late_op_;  // by position, from the turn on
  std::vector<std::int64_t> stays_before_;         // by segment: bytes that those before it keep, if all is kept
  std::vector<std::vector<Item>> candidates_;      // by segment
  std::vector<Position> last_early_;               // by item: its last early use
  double scale_;                                   // of costs
  std::vector<std::vector<std::vector<Option>>> options_;  // by first segment and number of segments - 1
};

}  // namespace lowtide
