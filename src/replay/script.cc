#include "replay/script.h"

#include <algorithm>
#include <bit>
#include <map>

namespace lowtide::replay {

Script::Script(std::span<const Request> requests) {
  lines_.reserve(requests.size());
  for (const Request& request : requests) lines_.push_back({request.bytes, request.offset, kNoSlot, 0, 0});
  prepare();
}

void Script::move_outside(std::span<const std::uint32_t> lines) {
  for (const std::uint32_t line : lines) lines_[line].offset = kOutside;
  prepare();
}

bool Script::begins_like(const Script& other, std::size_t lines) const {
  if (this == &other) return lines <= size();
  return lines <= size() && lines <= other.size() &&
         std::equal(lines_.begin(), lines_.begin() + static_cast<std::ptrdiff_t>(lines), other.lines_.begin(),
                    [](const Line& a, const Line& b) { return a.bytes == b.bytes && a.offset == b.offset; });
}

void Script::prepare() {
  make_slots();
  find_owners();
}

void Script::make_slots() {
  slots_.clear();
  arena_bytes_ = 0;
  for (const Line& line : lines_) {
    if (line.offset == kOutside) continue;
    slots_.push_back(line.offset);
    arena_bytes_ = std::max(arena_bytes_, line.offset + line.bytes);
  }
  std::sort(slots_.begin(), slots_.end());
  slots_.erase(std::unique(slots_.begin(), slots_.end()), slots_.end());

  const std::size_t places = std::bit_ceil(std::max<std::size_t>(2 * slots_.size(), 2));
  shift_ = 64 - std::countr_zero(places);
  index_.assign(places, kNoSlot);
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    std::size_t place = hash(slots_[slot]);
    while (index_[place] != kNoSlot) place = (place + 1) & (places - 1);
    index_[place] = slot;
  }
  for (Line& line : lines_) line.slot = line.offset == kOutside ? kNoSlot : slot_at(line.offset);
}

// A map of who covers what: each line cuts out its own stretch, and what it meets there are its owners before. A line
// adds three stretches at most, and each is met once more before it is gone.
void Script::find_owners() {
  struct Stretch {
    std::int64_t end;
    std::uint32_t line;
  };
  std::map<std::int64_t, Stretch> covered;  // by their beginning; they do not overlap
  owners_.clear();
  for (std::uint32_t index = 0; index < lines_.size(); ++index) {
    Line& line = lines_[index];
    line.owners_begin = static_cast<std::uint32_t>(owners_.size());
    if (line.slot != kNoSlot) {
      const std::int64_t end = line.offset + line.bytes;
      auto next = covered.upper_bound(line.offset);
      if (next != covered.begin() && std::prev(next)->second.end > line.offset) --next;
      while (next != covered.end() && next->first < end) {
        const auto [begin, stretch] = *next;
        owners_.push_back({stretch.line, lines_[stretch.line].slot});
        next = covered.erase(next);
        if (begin < line.offset) covered.emplace(begin, Stretch{line.offset, stretch.line});
        if (stretch.end > end) next = covered.emplace(end, stretch).first;
      }
      covered.emplace(line.offset, Stretch{end, index});
      const auto by_line = [](const Owner& a, const Owner& b) { return a.line < b.line; };
      const auto is_same = [](const Owner& a, const Owner& b) { return a.line == b.line; };
      const auto met = owners_.begin() + line.owners_begin;
      std::sort(met, owners_.end(), by_line);
      owners_.erase(std::unique(met, owners_.end(), is_same), owners_.end());
    }
    line.owners_end = static_cast<std::uint32_t>(owners_.size());
  }
}

}  // namespace lowtide::replay
