// algorithms.h: every layout algorithm, one function each; registry.cc gives them names.
#pragma once

#include "graph/words.h"
#include "lowtide/layout.h"

namespace lowtide {

Result<Layout> first_fit(std::span<const LayoutItem> items, Work& work);
Result<Layout> greedy_by_size(std::span<const LayoutItem> items, Work& work);

// What has no bytes or no life needs no place.
inline bool needs_place(const LayoutItem& item) {
  return item.size > Bytes(0) && item.begin < item.end;
}

inline Error does_not_fit(std::size_t item, Bytes size) {
  return {ErrorCode::size_overflow, words("item ", item, " of ", size,
                                          " bytes does not fit beside those that live with it: addresses end at 2^64")};
}

}  // namespace lowtide
