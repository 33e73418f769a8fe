#include "swaps.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "at_index.h"

namespace lowtide::torch_runtime {
namespace {

// Where a wait has failed that may not be over; under the arena's lock.
std::vector<std::shared_ptr<SlowTier>>& stuck_tiers() {
  static std::vector<std::shared_ptr<SlowTier>> tiers;
  return tiers;
}

}  // namespace

Swaps::Swaps(std::shared_ptr<SlowTier> tier, std::int64_t slot_bytes)
    : tier_(std::move(tier)), slot_bytes_(slot_bytes), first_slot_(slot_bytes > 0 ? tier_->reserve(slot_bytes) : 0) {}

Swaps::~Swaps() {
  if (slot_bytes_ > 0) tier_->release(first_slot_, slot_bytes_);
}

void Swaps::add(SwapTransfer transfer) {
  moving_.push_back({transfer});
}

void Swaps::has_home(int buffer, int home) {
  if (homes_.size() <= static_cast<std::size_t>(buffer)) homes_.resize(static_cast<std::size_t>(buffer) + 1, -1);
  at_index(homes_, buffer) = home;
}

void Swaps::finish(std::size_t calls) {
  issues_.resize(calls + 1);
  waits_.resize(calls + 1);
  dirty_.resize(homes_.size());
  for (std::size_t i = 0; i < moving_.size(); ++i) {
    at_index(issues_, moving_[i].transfer.issue).push_back(static_cast<int>(i));
    at_index(waits_, moving_[i].transfer.wait).push_back(static_cast<int>(i));
  }
}

int Swaps::home_of(int buffer) const {
  return static_cast<std::size_t>(buffer) < homes_.size() ? at_index(homes_, buffer) : -1;
}

void Swaps::begin_step() {
  std::fill(dirty_.begin(), dirty_.end(), false);
}

void Swaps::wrote(int buffer) {
  if (home_of(buffer) >= 0) at_index(dirty_, buffer) = true;
}

void Swaps::before(int call, SwapPlaces& places) {
  for (const bool stores : {true, false}) {
    for (const int i : at_index(issues_, call)) {
      if (at_index(moving_, i).transfer.stores == stores) begin(at_index(moving_, i), places);
    }
    for (const int i : at_index(waits_, call)) {
      if (at_index(moving_, i).transfer.stores == stores) end(at_index(moving_, i));
    }
  }
}

// A store goes on to the end of a page: of a part of a storage it would overwrite what is beside it.
std::optional<std::int64_t> Swaps::home_slot(int buffer, SwapPlaces& places) const {
  const std::byte* home = places.home(buffer);
  return places.is_whole_storage(buffer) ? tier_->slot_of(home) : std::nullopt;
}

void Swaps::begin(Moving& moving, SwapPlaces& places) {
  const auto& [from, to, issue, wait, stores] = moving.transfer;
  std::byte* memory = stores ? places.in_memory(from) : places.to_load(to);
  const int there = stores ? to : from;
  std::byte* home = places.home(there);
  const std::optional<std::int64_t> slot = home == nullptr ? places.slot(there) : home_slot(there, places);
  if (!slot) {  // the caller has put other memory there
    tier_->copy(stores ? home : memory, stores ? memory : home, places.bytes(there));
    if (stores && home_of(from) >= 0) at_index(dirty_, from) = false;
    return;
  }
  moving.ticket =
      stores ? tier_->store(memory, *slot, places.bytes(there)) : tier_->load(*slot, memory, places.bytes(there));
  moving.under_way = true;
  if (stores && !places.is_planned_place(from)) end(moving);  // that memory may be freed with the block
}

void Swaps::end(Moving& moving) {
  if (!moving.under_way) return;
  moving.under_way = false;
  tier_->wait(moving.ticket);
  const int from = moving.transfer.from;
  if (moving.transfer.stores && home_of(from) >= 0) at_index(dirty_, from) = false;
}

void Swaps::note_if_stuck() {
  if (!tier_->is_quiet()) stuck_tiers().push_back(tier_);
}

void Swaps::refuse_while_stuck() {
  std::vector<std::shared_ptr<SlowTier>>& tiers = stuck_tiers();
  std::erase_if(tiers, [](const std::shared_ptr<SlowTier>& tier) { return tier->is_quiet(); });
  TORCH_CHECK(tiers.empty(), "lowtide: a transfer of an earlier step is still under way, and has its memory");
}

void Swaps::settle(SwapPlaces& places) {
  std::exception_ptr failed;
  const auto keep = [&](const auto& action) {
    try {
      action();
      return true;
    } catch (...) {
      if (!failed) failed = std::current_exception();
      return false;
    }
  };
  for (Moving& moving : moving_) keep([&] { end(moving); });
  for (std::size_t b = 0; b < dirty_.size(); ++b) {
    if (!dirty_[b]) continue;
    const int home = homes_[b];
    const std::byte* memory = places.in_memory(static_cast<int>(b));
    const bool stored = keep([&] {
      const std::optional<std::int64_t> slot = home_slot(home, places);
      if (slot) tier_->wait(tier_->store(memory, *slot, places.bytes(home)));
      if (!slot) tier_->copy(places.home(home), memory, places.bytes(home));
    });
    if (!stored) keep([&] { places.bring_home(home, memory); });
    dirty_[b] = false;
  }
  if (failed) std::rethrow_exception(failed);
}

}  // namespace lowtide::torch_runtime
