#include "cells.h"

#include <algorithm>

namespace lowtide {

const char* Cells::acquire(std::size_t owner, std::size_t start, std::size_t size) {
  if (start % 64 != 0) return "an address is not aligned";
  if (start > cells_.size() || size > cells_.size() - start) return "an address is not in the arena";
  for (std::size_t i = start; i < start + size; ++i) {
    if (cells_[i].owner != kNobody) return "a byte has an owner already";
  }
  for (std::size_t i = start; i < start + size; ++i) cells_[i] = {owner, kPoison};
  in_use_ += size;
  most_in_use_ = std::max(most_in_use_, in_use_);
  high_water_ = std::max(high_water_, start + size);
  return nullptr;
}

void Cells::release(std::size_t owner) {
  for (Cell& cell : cells_) {
    if (cell.owner != owner) continue;
    cell = {};
    --in_use_;
  }
}

void Cells::pass_on(std::size_t giver, std::size_t heir) {
  for (Cell& cell : cells_) {
    if (cell.owner == giver) cell = {heir, kPoison};
  }
}

std::optional<Contents> Cells::read(std::size_t owner, std::size_t start, std::size_t size) const {
  Contents contents(size);
  for (std::size_t i = 0; i < size; ++i) {
    if (owner_at(start + i) != owner) return std::nullopt;
    contents[i] = cells_[start + i].tag;
  }
  return contents;
}

void Cells::write(std::size_t start, const Contents& contents) {
  for (std::size_t i = 0; i < contents.size(); ++i) cells_[start + i].tag = contents[i];
}

}  // namespace lowtide
