#include "lowtide/batch_planner.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace lowtide {
namespace {

constexpr double kOvershootFades = 0.98;

// The next number that has seven binary digits and then zeros: at most 1/64 more.
std::uint64_t rounded_up(std::uint64_t extent) {
  const auto digits = std::bit_width(extent);
  if (digits <= 7) return extent;
  const std::uint64_t step = std::uint64_t{1} << (digits - 7);
  return (extent + step - 1) / step * step;
}

// Roughly, as a share of one room: plans for rooms that are nearly the same are.
std::uint64_t rounded_down(Bytes room) {
  const auto digits = std::bit_width(room.count());
  return digits <= 9 ? room.count() : room.count() >> (digits - 9) << (digits - 9);
}

void raise_until_turn(Prediction& prediction, Bytes passing) {
  if (passing == Bytes(0)) return;
  for (BatchNeeds* needs : {&prediction.likely, &prediction.safe}) {
    needs->tail += passing;
    for (BlockNeeds& block : needs->blocks) {
      block.forward_kept += passing;
      block.forward_dropped += passing;
    }
  }
}

}  // namespace

BatchPlanner::BatchPlanner(std::size_t blocks, BatchPlannerOptions options)
    : options_(options), estimator_(blocks, options.estimator) {}

void BatchPlanner::observe(const Observation& observation) {
  estimator_.observe(observation);
  cache_.clear();
  by_age_.clear();
}

void BatchPlanner::learn_peak(Bytes likely_peak, Bytes actual_peak) {
  overshoot_ *= kOvershootFades;
  if (likely_peak.count() == 0) return;
  const double share =
      static_cast<double>((actual_peak - likely_peak).count()) / static_cast<double>(likely_peak.count());
  overshoot_ = std::max(overshoot_, share);
}

BatchPlan BatchPlanner::plan(std::span<const std::uint64_t> extents, Bytes room, Bytes passing) {
  BatchPlan plan;
  plan.dropped.assign(estimator_.blocks(), true);
  if (!estimator_.knows_something()) return plan;
  Prediction prediction = estimator_.predict(extents);
  raise_until_turn(prediction, passing);
  plan.known = !prediction.unknown && prediction.leverage <= options_.unknown_leverage;
  plan.tested = plan.known && prediction.tested;
  plan.extrapolates = prediction.extrapolates;
  // Overshoot is of the whole peak, so it is taken off the room.
  const Bytes usable(static_cast<std::uint64_t>(static_cast<double>(room.count()) / (1.0 + overshoot_)));
  if (plan.known) {
    Key key(extents.begin(), extents.end());
    std::transform(key.begin(), key.end(), key.begin(), rounded_up);
    const Key rounded = key;
    key.push_back(rounded_down(usable));
    const std::vector<bool>* cached = find(key);
    if (cached != nullptr && peak_of(prediction.safe, *cached) <= usable) {
      plan.dropped = *cached;
      plan.from_cache = true;
    } else {
      Prediction similar = estimator_.predict(rounded);
      raise_until_turn(similar, passing);
      Selection selection;
      if (!similar.extrapolates) selection = select_blocks(similar.safe, Bytes(key.back()));
      if (similar.extrapolates || selection.peak > Bytes(key.back()))
        selection = select_blocks(prediction.safe, usable);
      else
        insert(key, selection.dropped);
      plan.dropped = std::move(selection.dropped);
    }
  }
  plan.likely_peak = peak_of(prediction.likely, plan.dropped);
  plan.safe_peak = peak_of(prediction.safe, plan.dropped);
  for (std::size_t i = 0; i < plan.dropped.size(); ++i) {
    if (plan.dropped[i]) plan.again += prediction.likely.blocks[i].again;
  }
  return plan;
}

Bytes BatchPlanner::likely_peak(std::span<const std::uint64_t> extents, const std::vector<bool>& dropped,
                                Bytes passing) const {
  Prediction prediction = estimator_.predict(extents);
  raise_until_turn(prediction, passing);
  return peak_of(prediction.likely, dropped);
}

Bytes BatchPlanner::least_peak(std::span<const std::uint64_t> extents) const {
  return lowtide::least_peak(estimator_.predict(extents).likely).peak;
}

const std::vector<bool>* BatchPlanner::find(const Key& key) {
  const auto found = cache_.find(key);
  if (found == cache_.end()) return nullptr;
  by_age_.splice(by_age_.end(), by_age_, found->second.age);
  return &found->second.dropped;
}

void BatchPlanner::insert(const Key& key, std::vector<bool> dropped) {
  const auto old = cache_.find(key);
  if (old != cache_.end()) {
    old->second.dropped = std::move(dropped);
    return;
  }
  if (options_.cached_plans == 0) return;
  if (cache_.size() == options_.cached_plans) {
    cache_.erase(by_age_.front());
    by_age_.pop_front();
  }
  by_age_.push_back(key);
  cache_.emplace(key, Entry{std::move(dropped), std::prev(by_age_.end())});
}

}  // namespace lowtide
