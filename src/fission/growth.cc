#include "fission/growth.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lowtide {

Growth::Growth(const Operands& operands, const Dependencies& dependencies, std::span<const Split> known, Bytes most,
               bool exact)
    : operands_(operands),
      graph_(operands.graph()),
      dependencies_(dependencies),
      known_(known),
      most_(most),
      exact_(exact) {
  for (std::size_t split = 0; split < known.size(); ++split) {
    for (const CutOp& one : known[split].ops) split_of_.emplace(one.op, split);
  }
}

std::vector<std::uint32_t> Growth::counts_of(OpId op, std::size_t axis) const {
  std::vector<std::uint32_t> counts;
  for (const PartCount& parts : graph_.axis(op, axis).counts) {
    if (parts.exact || !exact_) counts.push_back(parts.count);
  }
  return counts;
}

bool Growth::has_counts(OpId op, std::size_t axis) const {
  const std::vector<std::uint32_t> own = counts_of(op, axis);
  return std::ranges::any_of(now_.counts,
                             [&](std::uint32_t count) { return std::ranges::find(own, count) != own.end(); });
}

const PartCount& Growth::parts_of(OpId op, std::size_t axis, std::uint32_t count) const {
  return *std::ranges::find(graph_.axis(op, axis).counts, count, &PartCount::count);
}

// Whether the op, cut so, uses what it shares with the split as that does: parts are the same parts, and what one
// writes the other uses in parts.
bool Growth::agrees(OpId op, std::size_t axis) const {
  for (const BufferId buffer : operands_.of(op)) {
    const std::optional<Bytes> period = operands_.period(op, axis, buffer);
    if (const auto parted = now_.parted.find(buffer); parted != now_.parted.end() && period != parted->second)
      return false;
    const bool writes = operands_.writes(op, buffer);
    for (const OpId other : operands_.users(buffer)) {
      const auto member = now_.axis_of.find(other);
      if (member == now_.axis_of.end() || other == op) continue;
      if (!writes && !operands_.writes(other, buffer)) continue;
      if (!period || *period == Bytes(0) || period != operands_.period(other, member->second, buffer)) return false;
    }
  }
  return true;
}

std::optional<std::size_t> Growth::axis_that_agrees(OpId op, std::optional<std::pair<BufferId, Bytes>> with) const {
  for (std::size_t axis = 0; axis < graph_.num_axes(op); ++axis) {
    if (with && operands_.period(op, axis, with->first) != with->second) continue;
    if (has_counts(op, axis) && agrees(op, axis)) return axis;
  }
  return std::nullopt;
}

bool Growth::add(OpId op, std::size_t axis) {
  if (const auto member = now_.axis_of.find(op); member != now_.axis_of.end()) return member->second == axis;
  const std::vector<std::uint32_t> own = counts_of(op, axis);
  std::vector<std::uint32_t> common;
  std::ranges::set_intersection(now_.counts, own, std::back_inserter(common));
  now_.counts = now_.axis_of.empty() ? own : common;
  if (now_.counts.empty()) return false;
  now_.axis_of.emplace(op, axis);
  now_.unseen.push_back(op);
  const auto known = split_of_.find(op);
  return known == split_of_.end() || absorb(known->second);
}

// All of another split, whose ops are cut as they are there.
bool Growth::absorb(std::size_t split) {
  if (std::ranges::find(now_.absorbed, split) != now_.absorbed.end()) return true;
  now_.absorbed.push_back(split);
  return std::ranges::all_of(known_[split].ops, [&](const CutOp& one) {
    return now_.axis_of.contains(one.op) ? now_.axis_of[one.op] == one.axis
                                         : agrees(one.op, one.axis) && add(one.op, one.axis);
  });
}

// All who use it join.
bool Growth::part(BufferId id, Bytes period) {
  const Buffer buffer = graph_.buffer(id);
  if (!buffer.planned() || buffer.kept) return false;
  for (const OpId user : operands_.users(id)) {
    const auto member = now_.axis_of.find(user);
    const std::optional<std::size_t> axis =
        member != now_.axis_of.end() ? std::optional(member->second) : axis_that_agrees(user, std::pair(id, period));
    if (!axis || operands_.period(user, *axis, id) != period || !add(user, *axis)) return false;
  }
  now_.parted.emplace(id, period);
  return true;
}

bool Growth::fits(OpId op, std::uint32_t count) const {
  const auto is_parted = [&](BufferId buffer) { return now_.parted.contains(buffer); };
  return operands_.needed(op, parts_of(op, now_.axis_of.at(op), count), is_parted) <= most_;
}

// Largest first, until nothing is left to gain; those that cannot be parted stay whole.
bool Growth::part_largest(std::set<BufferId>& tried, std::span<const OpId> ops) {
  std::optional<std::pair<BufferId, Bytes>> largest;
  for (const OpId op : ops) {
    for (const BufferId buffer : operands_.of(op)) {
      const std::optional<Bytes> period = operands_.period(op, now_.axis_of.at(op), buffer);
      if (!period || *period == Bytes(0) || now_.parted.contains(buffer) || tried.contains(buffer)) continue;
      if (!graph_.buffer(buffer).planned() || graph_.buffer(buffer).kept) continue;
      if (!largest || graph_.buffer(buffer).size > graph_.buffer(largest->first).size) largest = {buffer, *period};
    }
  }
  if (!largest) return false;
  tried.insert(largest->first);
  Grown before = now_;
  if (!part(largest->first, largest->second)) now_ = std::move(before);
  return true;
}

bool Growth::make_fit(OpId op) {
  std::set<BufferId> tried;
  while (!fits(op, now_.counts.back())) {
    if (!part_largest(tried, std::span(&op, 1))) return false;
  }
  return true;
}

// What is there while the split runs: all that is whole, and of the rest what one op needs.
Bytes Growth::footprint(std::uint32_t count) const {
  std::set<BufferId> whole;
  Bytes part;
  for (const auto& [op, axis] : now_.axis_of) {
    Bytes own = parts_of(op, axis, count).workspace;
    for (const BufferId buffer : operands_.of(op)) {
      if (!graph_.buffer(buffer).planned()) continue;
      if (now_.parted.contains(buffer)) {
        own += Bytes(graph_.buffer(buffer).size.count() / count);
      } else {
        whole.insert(buffer);
      }
    }
    part = std::max(part, own);
  }
  Bytes bytes = part;
  for (const BufferId buffer : whole) bytes += graph_.buffer(buffer).size;
  return bytes;
}

// What the split shares with others is there whole from its first part to its last: as little of that as can be.
void Growth::narrow() {
  while (footprint(now_.counts.back()) > most_) {
    std::vector<OpId> ops;
    for (const auto& [op, axis] : now_.axis_of) ops.push_back(op);
    if (!part_largest(now_.tried, ops)) return;
  }
}

// Ops that come after one of the split and before another join it.
bool Growth::fill_between() {
  const OpId first = now_.axis_of.begin()->first;
  const OpId last = now_.axis_of.rbegin()->first;
  const std::size_t range = last.index() - first.index() + 1;
  std::vector<bool> after(range), before(range);
  const auto at = [&](OpId op) { return op.index() - first.index(); };
  for (OpId id = first; id <= last; id = id.next()) {
    after[at(id)] =
        now_.axis_of.contains(id) || std::ranges::any_of(dependencies_.predecessors[id.index()],
                                                         [&](OpId op) { return op >= first && after[at(op)]; });
  }
  for (OpId id = last;; id = OpId(id.index() - 1)) {
    before[at(id)] =
        now_.axis_of.contains(id) || std::ranges::any_of(dependencies_.successors[id.index()],
                                                         [&](OpId op) { return op <= last && before[at(op)]; });
    if (id == first) break;
  }
  for (OpId id = first; id <= last; id = id.next()) {
    if (!after[at(id)] || !before[at(id)] || now_.axis_of.contains(id)) continue;
    const std::optional<std::size_t> axis = axis_that_agrees(id, std::nullopt);
    if (!axis || !add(id, *axis)) return false;
  }
  return true;
}

std::optional<GrownSplit> Growth::from(OpId op, std::size_t axis) {
  now_ = {};
  if (!add(op, axis)) return std::nullopt;
  while (!now_.unseen.empty()) {
    while (!now_.unseen.empty()) {
      const OpId next = now_.unseen.back();
      now_.unseen.pop_back();
      if (!make_fit(next)) return std::nullopt;
    }
    narrow();
    if (now_.unseen.empty() && !fill_between()) return std::nullopt;
  }
  const bool is_narrow = footprint(now_.counts.back()) <= most_;
  for (const std::uint32_t count : now_.counts) {
    const auto fits_so = [&](const auto& member) { return fits(member.first, count); };
    if (!std::ranges::all_of(now_.axis_of, fits_so) || (is_narrow && footprint(count) > most_)) continue;
    GrownSplit grown;
    grown.split.count = count;
    grown.absorbed = now_.absorbed;
    for (const auto& [member, along] : now_.axis_of) {
      grown.split.ops.push_back({member, static_cast<std::uint32_t>(along)});
      const std::uint64_t parts = parts_of(member, along, count).cost.count() * count;
      grown.more_time += static_cast<std::int64_t>(parts) - static_cast<std::int64_t>(graph_.op(member).cost.count());
    }
    return grown;
  }
  return std::nullopt;
}

}  // namespace lowtide
