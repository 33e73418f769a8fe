#include "base/words.h"
#include "lowtide/layout.h"

namespace lowtide {

Result<TieredLayout> lay_out_tiers(std::span<const LayoutItem> items, std::span<const MemoryTier> tiers,
                                   const LayoutOptions& options) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].tier < tiers.size()) continue;
    return Error{ErrorCode::invalid_item,
                 words("item ", i, " is in tier ", items[i].tier, "; there are ", tiers.size())};
  }
  TieredLayout made{std::vector<Bytes>(items.size()), {}};
  for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
    // What is elsewhere takes no bytes here, and keeps its number for messages.
    std::vector<LayoutItem> here(items.begin(), items.end());
    for (LayoutItem& item : here) {
      if (item.tier != tier) item = {item.begin, item.end, Bytes(0)};
    }
    LayoutOptions own = options;
    own.capacity = tiers[tier].capacity;
    Result<NamedLayout> arena = lay_out(here, own);
    if (!arena.ok()) {
      Error error = arena.error();
      error.message = words("in ", tiers[tier].name, ": ", error.message);
      return error;
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (items[i].tier == tier) made.offsets[i] = arena->layout.offsets[i];
    }
    made.arenas.push_back(*std::move(arena));
  }
  return made;
}

}  // namespace lowtide
