#include "adapt/levels.h"

#include <algorithm>
#include <limits>

namespace lowtide {
namespace {

// Below every level, and still so with anything on top.
constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::min() / 2;

std::int64_t to_level(Bytes bytes) {
  return static_cast<std::int64_t>(bytes.count());
}

}  // namespace

Levels::Levels(const BatchNeeds& needs, const std::vector<bool>& dropped)
    : needs_(needs), dropped_(dropped.size(), false), place_(dropped.size()), backward_(dropped.size()) {
  const std::size_t count = dropped.size();
  forward_.reserve(count + 1);
  for (std::size_t i = 0; i < count; ++i) {
    place_[needs.backward.empty() ? count - 1 - i : needs.backward[i]] = i;
    forward_.push_back(to_level(needs.blocks[i].forward_kept));
  }
  forward_.push_back(to_level(std::max(needs.tail, needs.turn)));
  for (std::size_t i = 0; i < count; ++i) backward_[place_[i]] = to_level(needs.blocks[i].backward_kept);
  for (std::size_t i = 0; i < count; ++i) {
    if (dropped[i]) flip(i);
  }
}

Levels::Change Levels::change(std::size_t i) const {
  const BlockNeeds& block = needs_.blocks[i];
  const std::int64_t forward = to_level(block.forward_dropped) - to_level(block.forward_kept);
  const std::int64_t backward = to_level(block.backward_dropped) - to_level(block.backward_kept);
  const std::int64_t sign = dropped_[i] ? -1 : 1;
  return {forward_[i] + sign * forward, backward_[place_[i]] + sign * backward, -sign * to_level(block.freed_forward),
          -sign * to_level(block.freed_backward)};
}

Bytes Levels::peak_if_flipped(std::size_t block) const {
  const auto highest = [](auto begin, auto end) {
    std::int64_t level = kNothing;
    for (; begin != end; ++begin) level = std::max(level, *begin);
    return level;
  };
  const Change after = change(block);
  const auto own = forward_.begin() + static_cast<std::ptrdiff_t>(block);
  const auto own_back = backward_.begin() + static_cast<std::ptrdiff_t>(place_[block]);
  const std::int64_t peak = std::max({to_level(needs_.update), highest(forward_.begin(), own), after.forward,
                                      highest(own + 1, forward_.end()) + after.higher_forward,
                                      highest(backward_.begin(), own_back) + after.higher_backward, after.backward,
                                      highest(own_back + 1, backward_.end())});
  return Bytes(static_cast<std::uint64_t>(peak));
}

void Levels::flip(std::size_t block) {
  const Change after = change(block);
  forward_[block] = after.forward;
  for (std::size_t i = block + 1; i < forward_.size(); ++i) forward_[i] += after.higher_forward;
  backward_[place_[block]] = after.backward;
  for (std::size_t i = 0; i < place_[block]; ++i) backward_[i] += after.higher_backward;
  dropped_[block] = !dropped_[block];
}

}  // namespace lowtide
