#include "brute_force.h"

#include <algorithm>

namespace lowtide {
namespace {

class Stacking {
 public:
  explicit Stacking(std::span<const LayoutItem> items)
      : items_(items), offsets_(items.size()), placed_(items.size(), false) {}

  std::optional<Bytes> run() {
    stack(0, Bytes(0));
    return best_;
  }

 private:
  void stack(std::size_t count, Bytes top) {
    if (best_ && top >= *best_) return;
    if (count == items_.size()) {
      best_ = top;
      return;
    }
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (placed_[i]) continue;
      const std::optional<Bytes> offset = lowest(i);
      if (!offset) continue;
      placed_[i] = true;
      offsets_[i] = *offset;
      stack(count + 1, std::max(top, *offset + items_[i].size));
      placed_[i] = false;
    }
  }

  // On everything that is placed and lives with it.
  std::optional<Bytes> lowest(std::size_t item) const {
    const LayoutItem& own = items_[item];
    std::uint64_t offset = 0;
    for (std::size_t j = 0; j < items_.size(); ++j) {
      if (!placed_[j] || items_[j].end <= own.begin || own.end <= items_[j].begin) continue;
      offset = std::max(offset, (offsets_[j] + items_[j].size).count());
    }
    if (own.fixed) return offset <= own.fixed->count() ? own.fixed : std::nullopt;
    const std::uint64_t alignment = own.alignment.count();
    return Bytes((offset + alignment - 1) / alignment * alignment);
  }

  std::span<const LayoutItem> items_;
  std::vector<Bytes> offsets_;
  std::vector<bool> placed_;
  std::optional<Bytes> best_;
};

}  // namespace

std::optional<Bytes> smallest_arena(std::span<const LayoutItem> items) {
  return Stacking(items).run();
}

}  // namespace lowtide
