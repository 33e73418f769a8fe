#include "search/rules.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/keys.h"
#include "search/stretch.h"

namespace lowtide {
namespace {

constexpr std::size_t kPeaksLookedAt = 4;

// Where the runs of regions are once `count` runs have come in before `at`.
void make_room(std::vector<PlacedRegion>& regions, std::uint32_t at, std::uint32_t count) {
  for (PlacedRegion& placed : regions) {
    if (placed.begin >= at) placed.begin += count;
    if (placed.end > at) placed.end += count;
  }
}

// And once `count` runs have gone, from `at` on.
void close_up(std::vector<PlacedRegion>& regions, std::uint32_t at, std::uint32_t count) {
  for (PlacedRegion& placed : regions) {
    if (placed.begin > at) placed.begin -= count;
    if (placed.end > at) placed.end -= count;
  }
}

}  // namespace

Rules::Rules(const Graph& graph, const Reruns& reruns, bool exact, const RuleOptions& options)
    : graph_(graph),
      reruns_(reruns),
      options_(options),
      operands_(graph),
      needs_(dependencies(graph)),
      tree_(graph, exact),
      sweep_(reruns),
      first_run_(reruns.num_ops()) {}

// Whether it can run again in the region, in parts: an op that leaves out updates when it runs again has no axes then.
bool Rules::is_inside(Unit unit, const Region& region) const {
  return std::ranges::all_of(reruns_.members[unit], [&](Position op) {
    return region.has[op] && !graph_.op(reruns_.order[op]).flags.may_skip_updates;
  });
}

std::shared_ptr<const Region> Rules::region_of(RegionName name, std::uint32_t count) {
  std::shared_ptr<const Region>& known = regions_[{name, count}];
  if (!known) {
    known = std::make_shared<const Region>(make_region(graph_, operands_, reruns_, name, tree_.ops(name), count));
  }
  return known;
}

// Whether a region can be depends little on the sequence: it is tried on the step as it is.
const std::vector<std::uint32_t>& Rules::counts_of(RegionName name) {
  const auto [known, is_new] = counts_.try_emplace(name);
  if (is_new) {
    known->second = tree_.counts(tree_.ops(name));
    const Sequence once{each_once(reruns_), {}};
    if (!known->second.empty() && !with_region(once, region_of(name, known->second.front()))) known->second.clear();
  }
  return known->second;
}

std::vector<Change> Rules::changes(const Sequence& sequence) {
  std::vector<std::int64_t> held;
  const Figures figures = sweep_.of(sequence, held);
  std::vector<std::uint32_t> peaks;
  for (std::uint32_t i = 0; i < held.size() && peaks.size() < kPeaksLookedAt; ++i) {
    if (held[i] == figures.peak) peaks.push_back(i);
  }
  for (std::uint32_t i = 0; i < sequence.runs.size(); ++i) {
    if (!sequence.runs[i].again) first_run_[sequence.runs[i].op] = i;
  }
  std::vector<Change> changes;
  if (options_.split) {
    std::vector<bool> hot(graph_.num_buffers());
    for (const std::uint32_t peak : peaks) {
      for (const SequenceSweep::HeldItem& one : sweep_.held_while(sequence, peak)) {
        hot[reruns_.buffer[one.item].index()] = true;
      }
    }
    add_splits(sequence, hot, changes);
  }
  if (options_.run_again) {
    if (options_.hot_spots_only) {
      add_again(sequence, peaks, changes);
    } else {
      add_again_anywhere(sequence, changes);
    }
  }
  add_kept(sequence, changes);
  return changes;
}

// The unit again, right before that run; before the region that the run is in, unless it is of it.
std::optional<Change> Rules::again_before(const Sequence& sequence, Unit unit, std::uint32_t use) const {
  if (!reruns_.may_run_again[unit]) return std::nullopt;
  std::uint32_t at = use;
  const PlacedRegion* placed = sequence.region_at(use);
  if (placed != nullptr && !is_inside(unit, *placed->region)) at = placed->begin;
  while (at > 0 && continues_unit(reruns_, sequence.runs, at)) --at;
  const auto runs_later = [&](Position op) { return first_run_[op] >= at; };
  if (std::ranges::any_of(reruns_.members[unit], runs_later)) return std::nullopt;
  const Position until = reruns_.until[unit];
  if (until < reruns_.num_ops() && first_run_[until] < at) return std::nullopt;
  return Change{.rule = Rule::run_again, .unit = unit, .at = at};
}

void Rules::add_again(const Sequence& sequence, std::span<const std::uint32_t> peaks, std::vector<Change>& changes) {
  std::set<std::pair<Unit, std::uint32_t>> known;
  for (const std::uint32_t peak : peaks) {
    for (const SequenceSweep::HeldItem& one : sweep_.held_while(sequence, peak)) {
      if (one.is_used || one.next_use >= sequence.runs.size()) continue;
      const std::optional<Change> again = again_before(sequence, reruns_.made_by[one.item], one.next_use);
      if (again && again->at > peak && known.emplace(again->unit, again->at).second) changes.push_back(*again);
    }
  }
}

void Rules::add_again_anywhere(const Sequence& sequence, std::vector<Change>& changes) const {
  std::set<std::pair<Unit, std::uint32_t>> known;
  std::vector<std::uint32_t> last_use(reruns_.num_items());
  for (std::uint32_t i = 0; i < sequence.runs.size(); ++i) {
    const Position op = sequence.runs[i].op;
    for (const Item item : reruns_.takes[op]) {
      const std::optional<Change> again =
          last_use[item] + 1 < i ? again_before(sequence, reruns_.made_by[item], i) : std::nullopt;
      last_use[item] = i;
      if (again && known.emplace(again->unit, again->at).second) changes.push_back(*again);
    }
    for (const Item item : reruns_.makes[op]) last_use[item] = i;
  }
}

void Rules::add_kept(const Sequence& sequence, std::vector<Change>& changes) const {
  for (std::uint32_t i = 0; i < sequence.runs.size(); ++i) {
    if (!sequence.runs[i].again) continue;
    const Unit unit = reruns_.unit[sequence.runs[i].op];
    const std::span<const Position> members = reruns_.members[unit];
    const auto is_member = [&](std::size_t m) {
      return i + m < sequence.runs.size() && sequence.runs[i + m] == Run{members[m], true};
    };
    std::size_t same = 0;
    while (same < members.size() && is_member(same)) ++same;
    if (same == members.size()) changes.push_back({.rule = Rule::keep, .unit = unit, .at = i});
  }
}

void Rules::add_splits(const Sequence& sequence, const std::vector<bool>& hot, std::vector<Change>& changes) {
  const std::vector<FissionCandidate> candidates =
      tree_.candidates(hot, options_.levels, [&](RegionName name) { return !counts_of(name).empty(); });
  for (const FissionCandidate& candidate : candidates) {
    if (!candidate.is_leaf) continue;
    changes.push_back({.rule = Rule::split, .region = region_of(candidate.name, counts_of(candidate.name).front())});
  }
  for (std::uint32_t i = 0; i < sequence.regions.size(); ++i) {
    const Region& region = *sequence.regions[i].region;
    changes.push_back({.rule = Rule::whole, .at = i});
    const std::vector<std::uint32_t>& counts = counts_of(region.name);
    const auto now = std::ranges::find(counts, region.count);
    if (now != counts.begin()) {
      changes.push_back({.rule = Rule::recount, .at = i, .region = region_of(region.name, *std::prev(now))});
    }
    if (std::next(now) != counts.end()) {
      changes.push_back({.rule = Rule::recount, .at = i, .region = region_of(region.name, *std::next(now))});
    }
    if (const std::optional<std::size_t> parent = tree_.parent_of(region.name, candidates)) {
      const RegionName name = candidates[*parent].name;
      const std::vector<std::uint32_t>& above = counts_of(name);
      const auto as_many = std::ranges::lower_bound(above, region.count);
      changes.push_back(
          {.rule = Rule::split, .region = region_of(name, as_many != above.end() ? *as_many : above.back())});
    }
  }
}

// The runs between the first and the last of the region go before it, unless they need something of it: then they go
// behind it. Other regions go as a whole.
std::optional<Sequence> Rules::with_region(const Sequence& sequence, std::shared_ptr<const Region> region) const {
  struct Piece {
    std::uint32_t begin, end;
    const PlacedRegion* placed;  // null for a single run
  };
  const auto is_of_it = [&](const Run& run) {
    return region->has[run.op] && (!run.again || is_inside(reruns_.unit[run.op], *region));
  };
  std::uint32_t first = static_cast<std::uint32_t>(sequence.runs.size()), last = 0;
  for (std::uint32_t i = 0; i < sequence.runs.size(); ++i) {
    if (sequence.runs[i].again || !region->has[sequence.runs[i].op]) continue;
    first = std::min(first, i);
    last = i;
  }
  std::vector<const PlacedRegion*> others;
  for (const PlacedRegion& placed : sequence.regions) {
    const auto in_both = std::ranges::count_if(placed.region->ops, [&](const CutOp& one) {
      return std::ranges::binary_search(region->ops, one.op, {}, &CutOp::op);
    });
    if (in_both == 0) {
      others.push_back(&placed);
      if (placed.begin < first && first < placed.end) first = placed.begin;
      if (placed.begin <= last && last < placed.end) last = placed.end - 1;
    } else if (static_cast<std::size_t>(in_both) < placed.region->ops.size()) {
      return std::nullopt;
    }
  }
  const auto other_at = [&](std::uint32_t run) -> const PlacedRegion* {
    for (const PlacedRegion* placed : others) {
      if (placed->begin == run) return placed;
    }
    return nullptr;
  };

  std::vector<bool> behind(graph_.num_ops());  // by op: a run of it goes behind the region
  const auto needs_any = [&](const Run& run, const auto& of) {
    return std::ranges::any_of(needs_.predecessors[reruns_.order[run.op].index()], of);
  };
  const auto is_behind = [&](OpId op) { return static_cast<bool>(behind[op.index()]); };
  std::vector<Piece> before, own, after;
  std::vector<bool> of_region(graph_.num_ops());
  for (const CutOp& one : region->ops) of_region[one.op.index()] = true;
  for (std::uint32_t i = first; i <= last;) {
    const PlacedRegion* other = other_at(i);
    const Piece piece{i, other != nullptr ? other->end : i + 1, other};
    if (other == nullptr && is_of_it(sequence.runs[i])) {
      if (needs_any(sequence.runs[i], is_behind)) return std::nullopt;
      own.push_back(piece);
    } else {
      bool waits = false;
      for (std::uint32_t r = piece.begin; r < piece.end; ++r) {
        waits = waits || needs_any(sequence.runs[r], [&](OpId op) { return of_region[op.index()] || is_behind(op); });
      }
      for (std::uint32_t r = piece.begin; waits && r < piece.end; ++r) {
        behind[reruns_.order[sequence.runs[r].op].index()] = true;
      }
      (waits ? after : before).push_back(piece);
    }
    i = piece.end;
  }

  Sequence made;
  made.runs.assign(sequence.runs.begin(), sequence.runs.begin() + first);
  for (const PlacedRegion* placed : others) {
    if (placed->end <= first) made.regions.push_back(*placed);
  }
  const auto add = [&](const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
      const auto begin = static_cast<std::uint32_t>(made.runs.size());
      made.runs.insert(made.runs.end(), sequence.runs.begin() + piece.begin, sequence.runs.begin() + piece.end);
      if (piece.placed != nullptr) {
        made.regions.push_back({piece.placed->region, begin, begin + piece.end - piece.begin});
      }
    }
  };
  add(before);
  const auto begin = static_cast<std::uint32_t>(made.runs.size());
  add(own);
  made.regions.push_back({std::move(region), begin, static_cast<std::uint32_t>(made.runs.size())});
  add(after);
  made.runs.insert(made.runs.end(), sequence.runs.begin() + last + 1, sequence.runs.end());
  for (const PlacedRegion* placed : others) {
    if (placed->begin > last) made.regions.push_back(*placed);
  }
  if (!reads_are_right(made)) return std::nullopt;
  return made;
}

// What runs again still comes behind the first run of its unit, and before what changes the content that it reads.
bool Rules::reads_are_right(const Sequence& sequence) const {
  std::vector<bool> has_run(reruns_.num_ops());
  for (const Run& run : sequence.runs) {
    if (!run.again) {
      has_run[run.op] = true;
      continue;
    }
    const Unit unit = reruns_.unit[run.op];
    const Position until = reruns_.until[unit];
    if (until < reruns_.num_ops() && has_run[until]) return false;
    if (!std::ranges::all_of(reruns_.members[unit], [&](Position op) { return has_run[op]; })) return false;
  }
  return true;
}

std::optional<Sequence> Rules::apply(const Sequence& sequence, const Change& change) const {
  if (change.rule == Rule::split) return with_region(sequence, change.region);
  Sequence made = sequence;
  const std::span<const Position> members = reruns_.members[change.unit];
  const auto count = static_cast<std::uint32_t>(members.size());
  switch (change.rule) {
    case Rule::run_again: {
      Runs again;
      for (const Position member : members) again.push_back({member, true});
      made.runs.insert(made.runs.begin() + change.at, again.begin(), again.end());
      make_room(made.regions, change.at, count);
      break;
    }
    case Rule::keep:
      made.runs.erase(made.runs.begin() + change.at, made.runs.begin() + change.at + count);
      close_up(made.regions, change.at, count);
      break;
    case Rule::recount:
      made.regions[change.at].region = change.region;
      break;
    case Rule::whole:
      made.regions.erase(made.regions.begin() + change.at);
      break;
    case Rule::split:
      break;
  }
  return made;
}

std::uint64_t graph_key(const Sequence& sequence) {
  std::uint64_t key = 0;
  std::uint64_t user = 0;  // the op that is first run next
  for (std::size_t i = sequence.runs.size(); i-- > 0;) {
    const Run run = sequence.runs[i];
    if (!run.again) {
      user = run.op + 1;
    } else {
      key += mixed(mixed(run.op) + user);
    }
  }
  for (const PlacedRegion& placed : sequence.regions) {
    const Region& region = *placed.region;
    key += mixed(mixed((std::uint64_t{region.name.dimension} << 32) + region.name.top) + ~std::uint64_t{region.count});
  }
  return key;
}

}  // namespace lowtide
