#include "replay/server.h"

#include <algorithm>
#include <utility>

namespace lowtide::replay {
namespace {

constexpr std::size_t kNear = 32;  // lines in front and behind where a departed request is looked for
constexpr std::size_t kNone = static_cast<std::size_t>(-1);

bool overlap(std::int64_t a, std::int64_t a_bytes, std::int64_t b, std::int64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

void Server::begin(std::span<const std::shared_ptr<Script>> variants, Suits suits) {
  const std::lock_guard lock(mutex_);
  variants_.assign(variants.begin(), variants.end());
  script_ = variants.front().get();
  suits_ = suits;
  next_ = 0;
  in_sequence_ = script_->size() > 0;
  tally_ = Tally{};
  std::size_t slots = 0;
  for (const auto& variant : variants) slots = std::max(slots, variant->num_slots());
  if (held_.size() < slots) held_ = std::vector<std::atomic<std::int64_t>>(slots);
  for (auto& bytes : held_) bytes.store(0, std::memory_order_relaxed);
  holder_.assign(held_.size(), 0);
}

std::vector<Escaped> Server::end() {
  std::vector<Escaped> found;
  if (script_ == nullptr) return found;
  const std::lock_guard lock(mutex_);
  for (std::size_t slot = 0; slot < script_->num_slots(); ++slot) {
    const std::int64_t bytes = held_[slot].load(std::memory_order_acquire);
    if (bytes != 0) found.push_back({script_, holder_[slot], script_->slot_offset(slot), bytes});
  }
  escaped_.insert(escaped_.end(), found.begin(), found.end());
  num_escaped_.store(escaped_.size(), std::memory_order_release);
  script_ = nullptr;
  in_sequence_ = false;
  return found;
}

void Server::release_from_elsewhere(std::int64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(escaped_.begin(), escaped_.end(), [&](const Escaped& block) { return block.offset == offset; });
  if (found != escaped_.end()) {
    escaped_.erase(found);
    num_escaped_.store(escaped_.size(), std::memory_order_release);
    return;
  }
  if (script_ == nullptr) return;
  const std::uint32_t slot = script_->slot_at(offset);
  if (slot != Script::kNoSlot) held_[slot].store(0, std::memory_order_release);
}

std::int64_t Server::bytes_at(std::int64_t offset) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(escaped_.begin(), escaped_.end(), [&](const Escaped& block) { return block.offset == offset; });
  if (found != escaped_.end()) return found->bytes;
  const std::uint32_t slot = script_ != nullptr ? script_->slot_at(offset) : Script::kNoSlot;
  return slot == Script::kNoSlot ? 0 : held_[slot].load(std::memory_order_acquire);
}

std::int64_t Server::serve_otherwise(std::int64_t bytes) {
  if (script_ == nullptr) return kMiss;
  if (tally_.departed_at == Tally::kNowhere) {
    if (go_on_in_a_variant(bytes)) return serve(bytes);
    tally_.departed_at = static_cast<std::int64_t>(next_);
    in_sequence_ = false;
    used_.assign(script_->size(), false);
    std::fill_n(used_.begin(), next_, true);
  }
  const std::size_t found = find_line(bytes);
  if (found == kNone) {
    next_ = std::min(next_ + 1, script_->size());
    ++tally_.misses;
    return kMiss;
  }
  const Script::Line& line = script_->line(found);
  next_ = std::max(next_, found + 1);
  used_[found] = true;
  if (line.slot == Script::kNoSlot) {
    ++tally_.outside;
    return kOutside;
  }
  const std::int64_t place = find_place(line, bytes);
  if (place == kMiss) {
    ++tally_.misses;
    return kMiss;
  }
  take(script_->slot_at(place), found, place, bytes);
  return place;
}

// A variant whose next line is another one, but has this size: never the one that is followed now.
bool Server::go_on_in_a_variant(std::int64_t bytes) {
  if (suits_ != Suits::same_size) return false;
  if (next_ < script_->size() && script_->line(next_).bytes == bytes) return false;
  for (const auto& variant : variants_) {
    if (next_ < variant->size() && variant->line(next_).bytes == bytes && variant->begins_like(*script_, next_)) {
      go_on_in(variant.get());
      return true;
    }
  }
  return false;
}

// Whatever is alive has the place of a line that both have.
void Server::go_on_in(const Script* variant) {
  struct Held {
    std::uint32_t slot;
    std::uint32_t holder;
    std::int64_t bytes;
  };
  const std::lock_guard lock(mutex_);
  std::vector<Held> alive;
  for (std::size_t slot = 0; slot < script_->num_slots(); ++slot) {
    const std::int64_t bytes = held_[slot].exchange(0, std::memory_order_acq_rel);
    if (bytes != 0) alive.push_back({variant->slot_at(script_->slot_offset(slot)), holder_[slot], bytes});
  }
  for (const Held& block : alive) {
    holder_[block.slot] = block.holder;
    held_[block.slot].store(block.bytes, std::memory_order_release);
  }
  script_ = variant;
  in_sequence_ = true;
}

// The nearest line of that size which was not served yet; without one, the line where the script would be now.
std::size_t Server::find_line(std::int64_t bytes) const {
  const auto is_free = [&](std::size_t line) { return line < script_->size() && !used_[line]; };
  if (suits_ == Suits::same_size) {
    for (std::size_t far = 0; far < kNear; ++far) {
      const std::size_t ahead = next_ + far;
      if (is_free(ahead) && script_->line(ahead).bytes == bytes) return ahead;
      if (far > next_) continue;
      const std::size_t behind = next_ - far;
      if (is_free(behind) && script_->line(behind).bytes == bytes) return behind;
    }
  }
  return is_free(next_) && script_->line(next_).bytes >= bytes ? next_ : kNone;
}

// The line's own place if nothing alive overlaps it, otherwise the lowest slot where so many bytes are free.
std::int64_t Server::find_place(const Script::Line& line, std::int64_t bytes) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> alive;  // begin and end
  for (std::size_t slot = 0; slot < script_->num_slots(); ++slot) {
    const std::int64_t held = held_[slot].load(std::memory_order_acquire);
    if (held != 0) alive.emplace_back(script_->slot_offset(slot), script_->slot_offset(slot) + held);
  }
  for (const Escaped& block : escaped()) alive.emplace_back(block.offset, block.offset + block.bytes);
  std::sort(alive.begin(), alive.end());
  alive.emplace_back(script_->arena_bytes(), script_->arena_bytes());

  const bool is_free = std::none_of(alive.begin(), alive.end(), [&](const auto& block) {
    return overlap(block.first, block.second - block.first, line.offset, bytes);
  });
  if (is_free) return line.offset;
  std::int64_t gap = 0;  // begins here
  std::size_t slot = 0;
  for (const auto& [begin, end] : alive) {
    while (slot < script_->num_slots() && script_->slot_offset(slot) < gap) ++slot;
    if (slot == script_->num_slots()) break;
    if (script_->slot_offset(slot) + bytes <= begin) return script_->slot_offset(slot);
    gap = std::max(gap, end);
  }
  return kMiss;
}

bool Server::overlaps_one_escaped(std::int64_t offset, std::int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(escaped_.begin(), escaped_.end(),
                     [&](const Escaped& block) { return overlap(block.offset, block.bytes, offset, bytes); });
}

std::vector<Escaped> Server::escaped() const {
  const std::lock_guard lock(mutex_);
  return escaped_;
}

std::vector<Escaped> Server::forget_escaped() {
  const std::lock_guard lock(mutex_);
  num_escaped_.store(0, std::memory_order_release);
  return std::exchange(escaped_, {});
}

bool serves(const std::shared_ptr<Script>& script, std::span<const TracedRequest> requests) {
  if (script->size() != requests.size()) return false;
  Server server;
  server.begin({&script, 1}, Suits::same_size);
  std::vector<std::int64_t> offsets(requests.size());
  for (const Action& action : actions_of(requests)) {
    std::int64_t& offset = offsets[action.request];
    if (!action.releases) {
      offset = server.serve(requests[action.request].bytes);
    } else if (offset >= 0) {
      server.release(offset);
    }
  }
  return server.tally().departed_at == Tally::kNowhere;
}

}  // namespace lowtide::replay
