#include "trade/moves.h"

#include <algorithm>
#include <limits>
#include <set>

namespace lowtide {
namespace {

constexpr std::uint32_t kRoom = 20;  // moments before each late op for what is added
constexpr std::size_t kSparse = 2;   // moments for each run, with which those of a slot are worth spreading out
constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();
constexpr Position kNobody = std::numeric_limits<Position>::max();

void insert_sorted(std::vector<std::uint32_t>& list, std::uint32_t value) {
  list.insert(std::ranges::lower_bound(list, value), value);
}

void erase_sorted(std::vector<std::uint32_t>& list, std::uint32_t value) {
  list.erase(std::ranges::lower_bound(list, value));
}

}  // namespace

Moves::Moves(const Reruns& reruns, const Runs& runs) : r_(&reruns) {
  std::vector<std::vector<Position>> again(reruns.num_ops());
  std::set<Position> waiting;
  for (const auto& [op, is_again] : runs) {
    if (is_again) {
      const std::span<const Position> members = reruns.members[reruns.unit[op]];
      waiting.insert(members.begin(), members.end());
    } else {
      again[op].assign(waiting.begin(), waiting.end());
      waiting.clear();
    }
  }
  build(again, std::nullopt);
}

// Everything anew, with room for as many again where something runs again, is about to, or is late.
void Moves::build(const std::vector<std::vector<Position>>& again, std::optional<Position> wanted) {
  first_.clear();
  Moment next = 0;
  for (Position p = 0; p < r_->num_ops(); ++p) {
    first_.push_back(next);
    const bool early = p < r_->turn && again[p].empty() && p != wanted;
    next += static_cast<Moment>(early ? 1 : kRoom + 3 * again[p].size() + 1);
  }
  first_.push_back(next);
  cost_ = 0;
  again_.assign(r_->num_ops(), {});
  made_.assign(r_->num_items(), {});
  used_.assign(r_->num_items(), {});
  op_at_.assign(next + 1, kNobody);
  reused_.assign(next + 1, 0);
  std::vector<std::int64_t> held(next + 1);  // by moment; one for what is kept
  const auto begin_run = [&](Position op, Moment at) {
    op_at_[at] = op;
    for (const Item item : r_->takes[op]) used_[item].push_back(at);
    for (const Item item : r_->makes[op]) made_[item].push_back(at);
  };
  for (Position p = 0; p < r_->num_ops(); ++p) {
    const std::vector<Position>& inside = again[p];
    const std::size_t room = first_[p + 1] - first_[p] - 1;
    for (std::size_t i = 0; i < inside.size(); ++i) {
      const auto at = static_cast<Moment>(first_[p] + room * (i + 1) / (inside.size() + 1));
      again_[p].emplace_back(at, inside[i]);
      cost_ += r_->cost[inside[i]];
      begin_run(inside[i], at);
    }
    begin_run(p, first_[p + 1] - 1);
  }
  for (Item item = 0; item < r_->num_items(); ++item) {
    if (r_->kept[item]) used_[item].push_back(next);
    for (std::size_t i = 0; i < made_[item].size(); ++i) {
      const Life life = life_at(item, i);
      held[life.begin] += r_->size[item];
      if (life.end < next) held[life.end + 1] -= r_->size[item];
    }
  }
  for (Moment at = 1; at <= next; ++at) held[at] += held[at - 1];
  for (Moment at = 0; at < next; ++at) {
    if (op_at_[at] == kNobody) continue;
    reused_[at] = bytes_reused_at(at);
    held[at] += r_->workspace[op_at_[at]] - reused_[at];
  }
  tree_ = PeakTree(held);
}

Moves::Life Moves::life_at(Item item, std::size_t instance) const {
  const std::vector<Moment>& made = made_[item];
  const std::vector<Moment>& used = used_[item];
  const Moment begin = made[instance];
  const Moment limit = instance + 1 < made.size() ? made[instance + 1] : std::numeric_limits<Moment>::max();
  const auto after = std::ranges::lower_bound(used, limit);
  if (after == used.begin() || *std::prev(after) < begin) return {begin, begin};
  return {begin, *std::prev(after)};
}

void Moves::hold(Item item, Moment first, Moment last, std::int64_t sign) {
  if (first <= last) tree_.add(first, last, sign * r_->size[item]);
}

bool Moves::ends_at(Item item, Moment at) const {
  const std::vector<Moment>& made = made_[item];
  const auto after = std::ranges::lower_bound(made, at);
  if (after == made.begin()) return false;
  return life_at(item, static_cast<std::size_t>(after - made.begin()) - 1).end == at;
}

std::int64_t Moves::bytes_reused_at(Moment at) const {
  std::int64_t bytes = 0;
  std::int64_t placed = -1;
  for (const ItemReuse& reuse : r_->reuses[op_at_[at]]) {
    if (placed == reuse.to || !ends_at(reuse.from, at)) continue;
    placed = reuse.to;
    bytes += r_->size[reuse.to];
  }
  return bytes;
}

// Some life of `item` ends at this moment now, or no longer does.
void Moves::end_changed(Item item, Moment at) {
  const Position op = op_at_[at];
  if (op == kNobody) return;
  const std::span<const ItemReuse> reuses = r_->reuses[op];
  if (std::ranges::find(reuses, item, &ItemReuse::from) == reuses.end()) return;
  const std::int64_t bytes = bytes_reused_at(at);
  if (bytes == reused_[at]) return;
  tree_.add(at, at, reused_[at] - bytes);
  reused_[at] = bytes;
}

void Moves::add_run(Position op, Moment at) {
  op_at_[at] = op;
  if (r_->workspace[op] != 0) tree_.add(at, at, r_->workspace[op]);
  for (const Item item : r_->takes[op]) {
    const std::vector<Moment>& made = made_[item];
    const auto instance = static_cast<std::size_t>(std::ranges::lower_bound(made, at) - made.begin()) - 1;
    const Moment end = life_at(item, instance).end;
    insert_sorted(used_[item], at);
    if (at <= end) continue;
    hold(item, end + 1, at, 1);
    end_changed(item, end);
    end_changed(item, at);
  }
  for (const Item item : r_->makes[op]) {
    std::vector<Moment>& made = made_[item];
    const auto place = static_cast<std::size_t>(std::ranges::lower_bound(made, at) - made.begin());
    const Life before = place > 0 ? life_at(item, place - 1) : Life{at, at};
    insert_sorted(made, at);
    const Life own = life_at(item, place);
    if (place > 0) {
      const Moment end = life_at(item, place - 1).end;
      hold(item, end + 1, before.end, -1);
      if (end != before.end) {
        end_changed(item, end);
        end_changed(item, before.end);
      }
    }
    hold(item, own.begin, own.end, 1);
    end_changed(item, own.end);
  }
}

void Moves::remove_run(Position op, Moment at) {
  for (const Item item : r_->makes[op]) {
    std::vector<Moment>& made = made_[item];
    const auto place = static_cast<std::size_t>(std::ranges::lower_bound(made, at) - made.begin());
    const Life own = life_at(item, place);
    hold(item, own.begin, own.end, -1);
    const Moment end = place > 0 ? life_at(item, place - 1).end : 0;
    erase_sorted(made, at);
    if (place > 0) {
      const Moment now = life_at(item, place - 1).end;
      hold(item, end + 1, now, 1);
      if (now != end) {
        end_changed(item, end);
        end_changed(item, now);
      }
    }
    end_changed(item, own.end);
  }
  for (const Item item : r_->takes[op]) {
    const std::vector<Moment>& made = made_[item];
    const auto instance = static_cast<std::size_t>(std::ranges::lower_bound(made, at) - made.begin()) - 1;
    const Moment end = life_at(item, instance).end;
    erase_sorted(used_[item], at);
    const Moment now = life_at(item, instance).end;
    if (now == end) continue;
    hold(item, now + 1, end, -1);
    end_changed(item, now);
    end_changed(item, end);
  }
  if (r_->workspace[op] != 0) tree_.add(at, at, -r_->workspace[op]);
  if (reused_[at] != 0) tree_.add(at, at, reused_[at]);
  reused_[at] = 0;
  op_at_[at] = kNobody;
}

// A moment for the op among those that run again before the slot, which stay in the order of their first runs.
Moves::Moment Moves::place_of(Position op, Position slot) const {
  const auto& inside = again_[slot];
  const auto after = std::ranges::lower_bound(inside, op, {}, &std::pair<Moment, Position>::second);
  const Moment low = after == inside.begin() ? first_[slot] : std::prev(after)->first + 1;
  const Moment high = after == inside.end() ? first_[slot + 1] - 1 : after->first;
  return low < high ? low + (high - low) / 2 : kNever;
}

// Evenly over the moments of the slot.
void Moves::spread_out(Position slot) {
  const std::vector<std::pair<Moment, Position>> before = again_[slot];
  const std::size_t room = first_[slot + 1] - first_[slot] - 1;
  for (std::size_t i = before.size(); i-- > 0;) remove_run(before[i].second, before[i].first);
  for (std::size_t i = 0; i < before.size(); ++i) {
    auto& [at, op] = again_[slot][i];
    at = static_cast<Moment>(first_[slot] + room * (i + 1) / (before.size() + 1));
    add_run(op, at);
  }
}

void Moves::make_room(Position slot) {
  const std::size_t room = first_[slot + 1] - first_[slot] - 1;
  if (room >= kSparse * (again_[slot].size() + 1)) return spread_out(slot);
  std::vector<std::vector<Position>> again(r_->num_ops());
  for (Position p = 0; p < r_->num_ops(); ++p) {
    for (const auto& run : again_[p]) again[p].push_back(run.second);
  }
  build(again, slot);
}

void Moves::add(Unit unit, Position slot) {
  for (const Position op : r_->members[unit]) {
    if (place_of(op, slot) == kNever) make_room(slot);
    const Moment at = place_of(op, slot);
    auto& inside = again_[slot];
    inside.insert(std::ranges::lower_bound(inside, op, {}, &std::pair<Moment, Position>::second), {at, op});
    cost_ += r_->cost[op];
    add_run(op, at);
  }
}

void Moves::remove(Unit unit, Position slot) {
  auto& inside = again_[slot];
  const std::span<const Position> members = r_->members[unit];
  for (std::size_t i = members.size(); i-- > 0;) {
    const auto place = std::ranges::lower_bound(inside, members[i], {}, &std::pair<Moment, Position>::second);
    const auto [at, op] = *place;
    inside.erase(place);
    cost_ -= r_->cost[op];
    remove_run(op, at);
  }
}

bool Moves::runs_again(Unit unit, Position slot) const {
  const auto& inside = again_[slot];
  return std::ranges::binary_search(inside, r_->members[unit].front(), {}, &std::pair<Moment, Position>::second);
}

Runs Moves::runs() const {
  Runs runs;
  for (Position p = 0; p < r_->num_ops(); ++p) {
    for (const auto& run : again_[p]) runs.push_back({run.second, true});
    runs.push_back({p, false});
  }
  return runs;
}

Position Moves::slot_of(Moment at) const {
  return static_cast<Position>(std::ranges::upper_bound(first_, at) - first_.begin() - 1);
}

bool Moves::is_held_before(Item item, Position slot) const {
  const std::vector<Moment>& made = made_[item];
  const auto after = std::ranges::lower_bound(made, first_[slot + 1] - 1);
  return after != made.begin() && life_at(item, static_cast<std::size_t>(after - made.begin()) - 1).end >= first_[slot];
}

std::vector<Moves::Waiting> Moves::waiting_at_peak() const {
  const auto at = static_cast<Moment>(tree_.highest_at());
  std::vector<Waiting> waiting;
  for (const Item item : r_->candidates) {
    const auto after = std::ranges::lower_bound(made_[item], at);
    if (after == made_[item].begin()) continue;
    const Life life = life_at(item, static_cast<std::size_t>(after - made_[item].begin()) - 1);
    if (life.end <= at) continue;
    const auto next = std::ranges::upper_bound(used_[item], at);
    const auto used_now = next != used_[item].begin() && *std::prev(next) == at;
    const auto used_by_op = next != used_[item].end() && *next < first_.back();  // kept items are used at the very end
    if (!used_now && used_by_op) waiting.push_back({item, slot_of(*next)});
  }
  return waiting;
}

}  // namespace lowtide
