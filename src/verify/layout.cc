#include <algorithm>
#include <tuple>
#include <vector>

#include "base/words.h"
#include "lowtide/verify.h"
#include "verify/occupancy.h"

namespace lowtide {
namespace {

bool takes_room(const LayoutItem& item) {
  return item.size > Bytes(0) && item.begin < item.end;
}

Status verify_item(std::size_t index, const LayoutItem& item, const Layout& layout) {
  const Bytes offset = layout.offsets[index];
  if (item.alignment == Bytes(0) || offset.count() % item.alignment.count() != 0) {
    return Error{ErrorCode::misaligned, words("item ", index, " lies at ", offset,
                                              ", which is no multiple of its alignment ", item.alignment)};
  }
  if (item.fixed && *item.fixed != offset) {
    return Error{ErrorCode::wrong_block, words("item ", index, " lies at ", offset, ", but is fixed at ", *item.fixed)};
  }
  const std::optional<Bytes> end = checked_add(offset, item.size);
  if (!end) return Error{ErrorCode::address_overflow, words("item ", index, " ends beyond 64 bits")};
  if (*end > layout.arena) {
    return Error{ErrorCode::outside_arena,
                 words("item ", index, " ends at ", *end, ", above the arena of ", layout.arena, " bytes")};
  }
  return Done{};
}

// Items in the order in which they begin and end; what ends at a step is gone before anything begins there.
Status verify_apart(std::span<const LayoutItem> items, const Layout& layout) {
  struct Event {
    StepIndex step;
    bool begins;
    BlockId item;
  };
  std::vector<Event> events;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!takes_room(items[i])) continue;
    events.push_back({items[i].begin, true, BlockId(i)});
    events.push_back({items[i].end, false, BlockId(i)});
  }
  std::ranges::sort(events, {}, [](const Event& event) { return std::tuple(event.step, event.begins, event.item); });
  Occupancy taken;
  for (const Event& event : events) {
    const Bytes offset = layout.offsets[event.item.index()];
    if (!event.begins) {
      taken.give_back(offset);
      continue;
    }
    const Bytes end = offset + items[event.item.index()].size;
    if (const std::optional<BlockId> other = taken.find(offset, end)) {
      return Error{ErrorCode::block_overlap,
                   words("items ", *other, " and ", event.item, " live together at step ", event.step,
                         " and share bytes from ", std::max(offset, layout.offsets[other->index()]), " on")};
    }
    taken.take(offset, end, event.item);
  }
  return Done{};
}

}  // namespace

Status verify_layout(std::span<const LayoutItem> items, const Layout& layout) {
  if (layout.offsets.size() != items.size()) {
    return Error{ErrorCode::malformed_plan,
                 words("there are ", items.size(), " items and ", layout.offsets.size(), " offsets")};
  }
  Bytes highest;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!takes_room(items[i])) continue;
    if (const Status status = verify_item(i, items[i], layout); !status.ok()) return status.error();
    highest = std::max(highest, layout.offsets[i] + items[i].size);
  }
  if (highest != layout.arena) {
    return Error{ErrorCode::wrong_arena,
                 words("the arena is said to be ", layout.arena, " bytes, but the highest item ends at ", highest)};
  }
  return verify_apart(items, layout);
}

}  // namespace lowtide
