// estimator.h: what a batch will need, learnt from batches that were seen.
//
// Each level and each amount of BlockNeeds is a polynomial in the extents of the batch, fitted as observations come. A
// block that was kept says what it needs when kept. One that was dropped says both: its saved tensors were counted when
// it ran first, and when it ran again it was as if kept from then on.
//
//   one block, dropped:
//                                           again_peak
//     forward_peak                           __       settled_peak
//       __                                  |  |_______|-|_
//      |  |__ left                          |  held_again  |
//   ___| entered                     _______| before_again |___
//      forward pass         ...        backward pass
//
// The memory that this takes does not grow: a triangle for each block, and the last observations, from which everything
// is fitted again when a batch differs in a new way (see input_terms.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lowtide/adapt.h"
#include "lowtide/units.h"

namespace lowtide {

// One call of a block. Levels are above what was there when the batch came.
struct BlockObservation {
  bool dropped = false;
  Bytes entered;        // level when it was called
  Bytes left;           // and when it returned
  Bytes forward_peak;   // highest level since the block before it returned
  Bytes backward_peak;  // highest level from the gradient of its result to that of the next one
  Nanos time;           // of the forward pass
  // Of dropped blocks only:
  Bytes saved;      // what it would have kept for its backward pass: made in it, results not included
  Bytes lingering;  // the part of it that was alive nevertheless when it returned, until the turn
  Bytes result;     // what it made and returned
  Bytes before_again;
  Bytes again_peak;    // highest level until it had run again
  Bytes held_again;    // what it holds from then on
  Bytes settled_peak;  // highest level after that
};

struct Observation {
  std::vector<std::uint64_t> extents;
  std::vector<BlockObservation> blocks;
  std::vector<std::uint32_t> backward;  // blocks in the order of their backward passes
  Bytes tail_peak;                      // highest level after the last block, until the model returned
  Bytes turn_peak;                      // and from there to the first backward pass
  Bytes update_peak;
};

struct Prediction {
  BatchNeeds likely;
  BatchNeeds safe;  // with margins: three standard deviations, or the worst surprise of late
  // How much is known about such batches; see LeastSquares::leverage. Far above 1, nothing is.
  double leverage = 0.0;
  bool extrapolates = false;  // larger than any batch seen, or little is known
  // An extent differs that never has, or there are more terms than observations: anything is possible.
  bool unknown = false;
  bool tested = false;  // there are two observations more than terms: they could have said otherwise
};

struct EstimatorOptions {
  std::size_t order = 2;  // of the polynomials
  // An extent may exceed the largest seen by this share, and the leverage be so high, before that is extrapolation.
  double outside_share = 0.02;
  double high_leverage = 4.0;
  // Then all safe levels are higher by this share.
  double extrapolation_margin = 0.1;
};

class Estimator {
 public:
  explicit Estimator(std::size_t blocks, EstimatorOptions options = {});
  Estimator(Estimator&&) noexcept;
  Estimator& operator=(Estimator&&) noexcept;
  ~Estimator();

  std::size_t blocks() const;
  std::size_t observations() const;
  std::size_t extents() const;  // of each batch; 0 before the first

  // Every observation has the same number of extents, and as many blocks as the estimator.
  void observe(const Observation& observation);

  // Nothing is known, and nothing can be predicted, until each block was dropped once.
  bool knows_something() const;
  Prediction predict(std::span<const std::uint64_t> extents) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace lowtide
