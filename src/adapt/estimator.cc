#include "lowtide/estimator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>

#include "adapt/input_terms.h"
#include "adapt/least_squares.h"

namespace lowtide {
namespace {

constexpr std::size_t kRemembered = 64;  // observations, to be fitted again
constexpr double kSurpriseFades = 0.95;  // of a surprise, with each observation
constexpr double kDeviations = 3.0;

double to_double(Bytes bytes) {
  return static_cast<double>(bytes.count());
}
Bytes to_bytes(double value) {
  return Bytes(value > 0.0 ? static_cast<std::uint64_t>(value + 0.5) : 0);
}

// What is fitted for a block, in two groups: known from each observation, and only where it was dropped.
enum Always : std::size_t { kForwardKept, kBackwardKept, kTime, kAlways };
enum Dropped : std::size_t { kForwardDropped, kAgain, kSettled, kFreedForward, kFreedBackward, kDropped };

// And at the ends of the row of blocks.
enum End : std::size_t { kTail, kTurn, kEnds };

// Values that belong together: their fit, and how wrong it was of late.
template <std::size_t kCount>
class Fitted {
 public:
  explicit Fitted(const InputTerms& terms) : squares_(terms.weights(), kCount) {}

  void add(std::span<const double> row, const std::array<double, kCount>& values, bool outside) {
    if (!outside && squares_.rows() > row.size() + 1) {
      std::array<double, kCount> expected;
      squares_.predict(row, expected);
      for (std::size_t i = 0; i < kCount; ++i) {
        surprise_[i] = std::max(kSurpriseFades * surprise_[i], std::abs(values[i] - expected[i]));
      }
    }
    squares_.add(row, values);
    for (std::size_t i = 0; i < kCount; ++i) deviation_[i] = squares_.deviation(i);
  }

  std::array<double, kCount> predict(std::span<const double> row) const {
    std::array<double, kCount> values;
    squares_.predict(row, values);
    return values;
  }

  double margin(std::size_t value, double deviations) const {
    return std::max(surprise_[value], deviation_[value] * deviations);
  }

  const LeastSquares& squares() const { return squares_; }

 private:
  LeastSquares squares_;
  std::array<double, kCount> surprise_ = {};
  std::array<double, kCount> deviation_ = {};
};

// An observation as what would have been needed if all other blocks had been kept.
struct Sample {
  std::vector<std::uint64_t> extents;
  std::vector<bool> dropped;
  std::vector<std::array<double, kAlways>> always;
  std::vector<std::array<double, kDropped>> when_dropped;
  std::array<double, kEnds> ends = {};
};

struct Freed {
  Bytes forward;
  Bytes backward;
};

Freed freed_by(const BlockObservation& block) {
  if (!block.dropped) return {};
  // What it takes to be able to run again, such as the state of the generator of random numbers.
  const Bytes overhead = block.left - block.entered - block.result - block.lingering;
  const Bytes backward = block.saved - overhead;
  return {backward - block.lingering, backward};
}

Sample to_sample(const Observation& seen) {
  const std::size_t count = seen.blocks.size();
  Sample sample{seen.extents, std::vector<bool>(count), std::vector<std::array<double, kAlways>>(count),
                std::vector<std::array<double, kDropped>>(count)};
  Bytes freed_forward;
  Bytes freed_backward;
  for (std::size_t i = 0; i < count; ++i) {
    const BlockObservation& block = seen.blocks[i];
    const Freed freed = freed_by(block);
    Bytes kept = block.forward_peak;
    if (block.dropped) {
      kept = std::max({kept, block.entered + (block.again_peak - block.before_again), block.left + freed.forward});
    }
    sample.dropped[i] = block.dropped;
    sample.always[i][kForwardKept] = to_double(kept + freed_forward);
    sample.always[i][kTime] = static_cast<double>(block.time.count());
    sample.when_dropped[i][kForwardDropped] = to_double(block.forward_peak + freed_forward);
    sample.when_dropped[i][kFreedForward] = to_double(freed.forward);
    sample.when_dropped[i][kFreedBackward] = to_double(freed.backward);
    freed_forward += freed.forward;
    freed_backward += freed.backward;
  }
  sample.ends = {to_double(seen.tail_peak + freed_forward), to_double(seen.turn_peak + freed_forward)};
  for (const std::uint32_t i : seen.backward) {
    const BlockObservation& block = seen.blocks[i];
    const Freed freed = freed_by(block);
    freed_backward -= freed.backward;
    Bytes kept = block.backward_peak;
    if (block.dropped) kept = block.settled_peak + freed.backward - block.held_again;
    sample.always[i][kBackwardKept] = to_double(kept + freed_backward);
    // Two values, though only the higher one counts: which one that is changes with the batch, and a corner is no
    // polynomial.
    sample.when_dropped[i][kAgain] = to_double(block.again_peak + freed_backward);
    sample.when_dropped[i][kSettled] = to_double(block.settled_peak + freed_backward);
  }
  return sample;
}

}  // namespace

class Estimator::State {
 public:
  State(std::size_t blocks, EstimatorOptions options) : options_(options), terms_(options.order), blocks_(blocks) {}

  void observe(const Observation& seen) {
    ++observations_;
    backward_ = seen.backward;
    update_ = seen.update_peak;
    remembered_.push_back(to_sample(seen));
    if (remembered_.size() > kRemembered) remembered_.pop_front();
    const bool outside = observations_ > 1 && terms_.is_larger(seen.extents, options_.outside_share);
    if (!terms_.learn(seen.extents)) {
      fit(remembered_.back(), outside);
      return;
    }
    ends_.assign(1, Fitted<kEnds>(terms_));
    always_.assign(blocks_, Fitted<kAlways>(terms_));
    when_dropped_.assign(blocks_, Fitted<kDropped>(terms_));
    for (const Sample& sample : remembered_) fit(sample, true);
  }

  bool knows_something() const {
    return observations_ > 0 && std::all_of(when_dropped_.begin(), when_dropped_.end(),
                                            [](const auto& fitted) { return fitted.squares().rows() > 0; });
  }

  Prediction predict(std::span<const std::uint64_t> extents) const {
    const std::vector<double> row = terms_.row(extents);
    Prediction found;
    found.leverage = std::max(ends_.front().squares().leverage(row), fewest_dropped().leverage(row));
    found.unknown = terms_.is_new_kind(extents) || fewest_dropped().rows() < terms_.count();
    found.tested = !found.unknown && fewest_dropped().rows() >= terms_.count() + 2;
    found.extrapolates =
        found.unknown || found.leverage > options_.high_leverage || terms_.is_larger(extents, options_.outside_share);
    const double scale = found.extrapolates ? 1.0 + options_.extrapolation_margin : 1.0;
    const double deviations = kDeviations * std::sqrt(1.0 + found.leverage);
    for (BatchNeeds* needs : {&found.likely, &found.safe}) {
      needs->blocks.reserve(blocks_);
      needs->backward = backward_;
      needs->update = update_;
    }
    for (std::size_t i = 0; i < blocks_; ++i) {
      const auto always = always_[i].predict(row);
      const auto dropped = when_dropped_[i].predict(row);
      const Nanos time(static_cast<std::uint64_t>(std::max(always[kTime], 1.0)));
      found.likely.blocks.push_back({to_bytes(always[kForwardKept]), to_bytes(dropped[kForwardDropped]),
                                     to_bytes(always[kBackwardKept]),
                                     to_bytes(std::max(dropped[kAgain], dropped[kSettled])),
                                     to_bytes(dropped[kFreedForward]), to_bytes(dropped[kFreedBackward]), time});
      const auto higher = [&](const auto& fitted, const auto& values, std::size_t value) {
        return to_bytes(scale * (values[value] + fitted.margin(value, deviations)));
      };
      const auto lower = [&](std::size_t value) {
        return to_bytes(dropped[value] - when_dropped_[i].margin(value, deviations));
      };
      found.safe.blocks.push_back(
          {higher(always_[i], always, kForwardKept), higher(when_dropped_[i], dropped, kForwardDropped),
           higher(always_[i], always, kBackwardKept),
           std::max(higher(when_dropped_[i], dropped, kAgain), higher(when_dropped_[i], dropped, kSettled)),
           lower(kFreedForward), lower(kFreedBackward), time});
    }
    const auto ends = ends_.front().predict(row);
    const auto safe_end = [&](End end) {
      return to_bytes(scale * (ends[end] + ends_.front().margin(end, deviations)));
    };
    found.likely.tail = to_bytes(ends[kTail]);
    found.likely.turn = to_bytes(ends[kTurn]);
    found.safe.tail = safe_end(kTail);
    found.safe.turn = safe_end(kTurn);
    return found;
  }

  std::size_t blocks() const { return blocks_; }
  std::size_t observations() const { return observations_; }
  std::size_t extents() const { return remembered_.empty() ? 0 : remembered_.back().extents.size(); }

 private:
  void fit(const Sample& sample, bool outside) {
    const std::vector<double> row = terms_.row(sample.extents);
    ends_.front().add(row, sample.ends, outside);
    for (std::size_t i = 0; i < blocks_; ++i) {
      always_[i].add(row, sample.always[i], outside);
      if (sample.dropped[i]) when_dropped_[i].add(row, sample.when_dropped[i], outside);
    }
  }

  // Of the block that was dropped the least often.
  const LeastSquares& fewest_dropped() const {
    if (when_dropped_.empty()) return ends_.front().squares();
    return std::min_element(when_dropped_.begin(), when_dropped_.end(),
                            [](const auto& a, const auto& b) { return a.squares().rows() < b.squares().rows(); })
        ->squares();
  }

  EstimatorOptions options_;
  InputTerms terms_;
  std::size_t blocks_;
  std::size_t observations_ = 0;
  std::vector<std::uint32_t> backward_;
  Bytes update_;
  std::deque<Sample> remembered_;
  std::vector<Fitted<kEnds>> ends_;  // one
  std::vector<Fitted<kAlways>> always_;
  std::vector<Fitted<kDropped>> when_dropped_;
};

Estimator::Estimator(std::size_t blocks, EstimatorOptions options) : state_(std::make_unique<State>(blocks, options)) {}
Estimator::Estimator(Estimator&&) noexcept = default;
Estimator& Estimator::operator=(Estimator&&) noexcept = default;
Estimator::~Estimator() = default;

std::size_t Estimator::blocks() const {
  return state_->blocks();
}
std::size_t Estimator::observations() const {
  return state_->observations();
}
std::size_t Estimator::extents() const {
  return state_->extents();
}
void Estimator::observe(const Observation& observation) {
  state_->observe(observation);
}
bool Estimator::knows_something() const {
  return state_->knows_something();
}
Prediction Estimator::predict(std::span<const std::uint64_t> extents) const {
  return state_->predict(extents);
}

}  // namespace lowtide
