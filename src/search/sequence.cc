#include "search/sequence.h"

#include <algorithm>
#include <utility>

namespace lowtide {

Region make_region(const Graph& graph, const Operands& operands, const Reruns& reruns, RegionName name,
                   std::vector<CutOp> ops, std::uint32_t count) {
  Region region{.name = name,
                .count = count,
                .ops = std::move(ops),
                .has = std::vector<bool>(reruns.num_ops()),
                .cost = std::vector<std::int64_t>(reruns.num_ops()),
                .workspace = std::vector<std::int64_t>(reruns.num_ops()),
                .period = std::vector<Bytes>(reruns.num_items()),
                .uses = {}};
  std::vector<Position> position_of(reruns.num_ops());
  for (Position p = 0; p < reruns.num_ops(); ++p) position_of[reruns.order[p].index()] = p;
  std::vector<std::uint8_t> seen(reruns.num_items());
  const auto use = [&](const CutOp& one, Item item, bool is_made) {
    const Bytes period = operands.period(one.op, one.axis, reruns.buffer[item]).value_or(Bytes(0));
    if (seen[item] == 0) {
      region.period[item] = period;
      region.uses.push_back({item, false, Bytes(0)});
      seen[item] = 1;
    }
    if (region.period[item] != period) region.period[item] = Bytes(0);
    if (is_made) seen[item] = 2;
  };
  for (const CutOp& one : region.ops) {
    const Position p = position_of[one.op.index()];
    const auto parts = std::ranges::find(graph.axis(one.op, one.axis).counts, count, &PartCount::count);
    region.has[p] = true;
    region.cost[p] = static_cast<std::int64_t>(parts->cost.count()) * count;
    region.workspace[p] = static_cast<std::int64_t>(parts->workspace.count());
    for (const Item item : reruns.takes[p]) use(one, item, false);
    for (const Item item : reruns.makes[p]) use(one, item, true);
  }
  for (Region::Use& one : region.uses) {
    one.is_made = seen[one.item] == 2;
    one.period = region.period[one.item];
  }
  return region;
}

const PlacedRegion* Sequence::region_at(std::uint32_t run) const {
  for (const PlacedRegion& placed : regions) {
    if (placed.begin <= run && run < placed.end) return &placed;
  }
  return nullptr;
}

SequenceSweep::SequenceSweep(const Reruns& reruns)
    : reruns_(&reruns), live_(reruns.num_items()), parted_(reruns.num_items()), size_(reruns.size) {}

// What nobody needs behind the region, and it makes itself, is there in parts.
void SequenceSweep::part_items(const Region& region) {
  for (const auto& [item, is_made, period] : region.uses) {
    if (!is_made || period == Bytes(0) || live_[item] != 0) continue;
    parted_[item] = 1;
    size_[item] /= region.count;
  }
}

// All else that the region uses is there while a part runs, if another runs before it, where it makes it, or after it.
void SequenceSweep::hold_whole(const Region& region, bool made) {
  for (const auto& [item, is_made, period] : region.uses) {
    if (parted_[item] != 0 || live_[item] != 0 || is_made != made) continue;
    live_[item] = 1;
    bytes_ += size_[item];
  }
}

void SequenceSweep::leave(const Region& region) {
  for (const auto& [item, is_made, period] : region.uses) {
    if (is_made && live_[item] != 0) {
      live_[item] = 0;
      bytes_ -= size_[item];
    }
    if (parted_[item] == 0) continue;
    parted_[item] = 0;
    size_[item] = reruns_->size[item];
  }
}

bool SequenceSweep::wants(Position op) const {
  const auto is_live = [&](Item item) { return live_[item] != 0; };
  return std::ranges::any_of(reruns_->makes[op], is_live) || std::ranges::any_of(reruns_->changes[op], is_live);
}

// Goes to before a run of the op, in a region or not: the bytes held while it runs. What a region makes part by part
// begins with the first part: if this is another one, it was there before.
std::int64_t SequenceSweep::pass(Position op, const Region* region, bool is_first) {
  const Reruns& r = *reruns_;
  std::int64_t held = bytes_ + (region != nullptr ? region->workspace[op] : r.workspace[op]);
  const auto may_reuse = [&](const ItemReuse& reuse) {
    return region == nullptr || (parted_[reuse.from] != 0 && parted_[reuse.to] != 0 &&
                                 region->period[reuse.from] == region->period[reuse.to]);
  };
  std::int64_t placed = -1;
  for (const ItemReuse& reuse : r.reuses[op]) {
    if (live_[reuse.from] != 0 || placed == reuse.to || !may_reuse(reuse)) continue;
    placed = reuse.to;
    held -= size_[reuse.to];
  }
  for (const Item item : r.makes[op]) {
    if (parted_[item] == 0 && !is_first) continue;
    if (live_[item] != 0) {
      bytes_ -= size_[item];
      live_[item] = 0;
    } else {
      held += size_[item];
    }
  }
  for (const Item item : r.takes[op]) {
    if (live_[item] != 0) continue;
    live_[item] = 1;
    bytes_ += size_[item];
    held += size_[item];
  }
  return held;
}

// The runs of a region, from the last to `first`. Of three parts or more, those in the middle hold the most: what is
// made in parts is there, and what all read still is. Of two parts, the last is followed and then the first.
template <typename Visit>
void SequenceSweep::follow_region(const Sequence& sequence, const PlacedRegion& placed, std::uint32_t first,
                                  const Visit& visit) {
  const Region& region = *placed.region;
  const bool has_middle = region.count > 2 || first > placed.begin;
  part_items(region);
  hold_whole(region, true);
  if (has_middle) hold_whole(region, false);
  held_in_region_.assign(placed.end - placed.begin, 0);
  const auto follow_part = [&](bool is_first) {
    for (std::uint32_t i = placed.end; i-- > std::max(first, placed.begin);) {
      const auto [op, again] = sequence.runs[i];
      std::int64_t& held = held_in_region_[i - placed.begin];
      if (held < 0 || (again && !wants(op))) {
        held = -1;
      } else {
        held = std::max(held, pass(op, &region, is_first));
      }
    }
  };
  follow_part(false);
  if (!has_middle) {
    hold_whole(region, true);
    hold_whole(region, false);
    follow_part(true);
  }
  for (std::uint32_t i = placed.end; i-- > std::max(first, placed.begin);) {
    visit(i, held_in_region_[i - placed.begin], region.cost[sequence.runs[i].op]);
  }
  if (first <= placed.begin) leave(region);
}

// From the last run to `first`.
template <typename Visit>
Figures SequenceSweep::follow(const Sequence& sequence, std::uint32_t first, const Visit& visit) {
  const Reruns& r = *reruns_;
  Figures figures;
  bytes_ = 0;
  for (Item item = 0; item < r.num_items(); ++item) {
    live_[item] = r.kept[item] ? 1 : 0;
    parted_[item] = 0;
    size_[item] = r.size[item];
    if (r.kept[item]) bytes_ += r.size[item];
  }
  const auto note = [&](std::uint32_t i, std::int64_t held, std::int64_t cost) {
    if (held >= 0) figures.time += cost;
    figures.peak = std::max(figures.peak, held);
    visit(i, held);
  };
  auto placed = sequence.regions.rbegin();
  for (auto end = static_cast<std::uint32_t>(sequence.runs.size()); end > first;) {
    if (placed != sequence.regions.rend() && placed->end == end) {
      follow_region(sequence, *placed, first, note);
      end = placed->begin;
      ++placed;
      continue;
    }
    const auto [op, again] = sequence.runs[--end];
    const bool is_left_out = again && !wants(op);
    note(end, is_left_out ? -1 : pass(op, nullptr, true), r.cost[op]);
  }
  return figures;
}

Figures SequenceSweep::of(const Sequence& sequence) {
  return follow(sequence, 0, [](std::uint32_t, std::int64_t) {});
}

Figures SequenceSweep::of(const Sequence& sequence, std::vector<std::int64_t>& held) {
  held.resize(sequence.runs.size());
  return follow(sequence, 0, [&](std::uint32_t i, std::int64_t bytes) { held[i] = bytes; });
}

std::vector<SequenceSweep::HeldItem> SequenceSweep::held_while(const Sequence& sequence, std::uint32_t run) {
  const Reruns& r = *reruns_;
  std::vector<std::uint32_t> next(r.num_items(), static_cast<std::uint32_t>(sequence.runs.size()));
  follow(sequence, run + 1, [&](std::uint32_t i, std::int64_t held) {
    if (held < 0) return;
    const Position op = sequence.runs[i].op;
    for (const Item item : r.makes[op]) next[item] = static_cast<std::uint32_t>(sequence.runs.size());
    for (const Item item : r.takes[op]) next[item] = i;
  });
  std::vector<HeldItem> found;
  std::vector<bool> is_used(r.num_items());
  const Position op = sequence.runs[run].op;
  for (const Item item : r.takes[op]) is_used[item] = true;
  for (const Item item : r.makes[op]) is_used[item] = true;
  if (const PlacedRegion* placed = sequence.region_at(run)) {
    if (run + 1 == placed->end) part_items(*placed->region);
    for (const Region::Use& use : placed->region->uses) is_used[use.item] = is_used[use.item] || parted_[use.item] == 0;
  }
  for (Item item = 0; item < r.num_items(); ++item) {
    if (live_[item] != 0 || is_used[item]) found.push_back({item, is_used[item], next[item]});
  }
  return found;
}

Splitting splitting_of(const Reruns& reruns, const Sequence& sequence) {
  std::vector<std::int64_t> held;
  SequenceSweep(reruns).of(sequence, held);
  Splitting made;
  std::vector<std::uint32_t> step_of(sequence.runs.size());
  for (std::uint32_t i = 0; i < sequence.runs.size(); ++i) {
    step_of[i] = static_cast<std::uint32_t>(made.steps.size());
    if (held[i] >= 0) made.steps.push_back(reruns.order[sequence.runs[i].op]);
  }
  for (const PlacedRegion& placed : sequence.regions) {
    Split split{{}, placed.region->count};
    for (std::uint32_t i = placed.begin; i < placed.end; ++i) {
      if (held[i] < 0) continue;
      const OpId op = reruns.order[sequence.runs[i].op];
      const auto cut = std::ranges::lower_bound(placed.region->ops, op, {}, &CutOp::op);
      split.ops.push_back({OpId(step_of[i]), cut->axis});
    }
    made.splits.push_back(std::move(split));
  }
  return made;
}

}  // namespace lowtide
