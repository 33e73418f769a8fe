#include "verify/contents.h"

namespace lowtide {

Contents::Held Contents::look(BlockId block, const Piece& piece) const {
  if (sums_.contains(block)) return {std::nullopt, true};
  const auto found = parts_.find(block);
  if (found == parts_.end()) return {finished(block), false};
  const Parts& parts = found->second;
  if (parts.period != piece.period || parts.count != piece.part.count) return {std::nullopt, true};
  const auto version = parts.versions.find(piece.part.index);
  return {version != parts.versions.end() ? version->second : parts.rest, false};
}

bool Contents::is_empty(BlockId block) const {
  return !finished(block) && !parts_.contains(block) && !sums_.contains(block);
}

void Contents::write(BlockId block, const Piece& piece, VersionId version) {
  const bool all = piece.part.count == 1 || plan_.blocks[block.index()].part.count > 1;
  if (all) return write(block, version);
  const auto [found, fresh] = parts_.try_emplace(block, Parts{piece.period, piece.part.count, finished(block), {}, {}});
  Parts& parts = found->second;
  finished_[block.index()].reset();
  if (const auto old = parts.versions.find(piece.part.index); old != parts.versions.end()) --parts.holders[old->second];
  parts.versions.insert_or_assign(piece.part.index, version);
  if (++parts.holders[version] == parts.count) write(block, version);
}

void Contents::write(BlockId block, VersionId version) {
  clear(block);
  finished_[block.index()] = version;
}

void Contents::clear(BlockId block) {
  finished_[block.index()].reset();
  parts_.erase(block);
  sums_.erase(block);
}

const Contents::Sum* Contents::sum(BlockId block) const {
  const auto found = sums_.find(block);
  return found == sums_.end() ? nullptr : &found->second;
}

void Contents::add(BlockId block, VersionId version, const StepPart& step) {
  Sum& sum = sums_.try_emplace(block, Sum{version, step.axis, step.part.count, 0}).first->second;
  if (++sum.next == sum.count) write(block, version);
}

}  // namespace lowtide
