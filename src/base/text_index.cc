#include "lowtide/text_index.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace lowtide {

std::uint32_t TextIndex::intern(std::string_view text, Lists<char>& texts) {
  if (2 * texts.size() >= slots_.size()) grow();
  const auto hash = static_cast<std::uint32_t>(std::hash<std::string_view>{}(text));
  std::size_t at = hash & (slots_.size() - 1);
  for (; slots_[at].number != kFree; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].hash == hash && std::ranges::equal(texts[slots_[at].number], text)) return slots_[at].number;
  }
  slots_[at] = {hash, static_cast<std::uint32_t>(texts.size())};
  texts.add(text);
  return slots_[at].number;
}

void TextIndex::grow() {
  std::vector<Slot> old(std::max<std::size_t>(16, 2 * slots_.size()));
  std::swap(old, slots_);
  for (const Slot& slot : old) {
    if (slot.number == kFree) continue;
    std::size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].number != kFree) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

}  // namespace lowtide
