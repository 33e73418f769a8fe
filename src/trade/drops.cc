#include "trade/drops.h"

#include <algorithm>

namespace lowtide {

Choice keep_all(const Reruns& reruns) {
  Choice choice(reruns.num_items(), Fate::stays);
  for (const Item item : reruns.candidates) {
    if (!reruns.used_late[item]) choice[item] = Fate::dropped;
  }
  return choice;
}

Choice choice_of(const Reruns& reruns, const Runs& runs) {
  Choice choice = keep_all(reruns);
  std::vector<bool> again(reruns.num_units());
  for (const Run& run : runs) {
    if (run.again) again[reruns.unit[run.op]] = true;
  }
  for (const Item item : reruns.candidates) {
    if (again[reruns.made_by[item]]) choice[item] = Fate::dropped;
  }
  return choice;
}

const Runs& Dropping::runs_of(Choice& choice) {
  const Reruns& r = *reruns_;
  do {
    runs_.clear();
    for (Position p = 0; p < r.turn; ++p) runs_.push_back({p, false});
  } while (!make_late_runs(choice, r.turn, static_cast<Position>(r.num_ops())));
  return runs_;
}

const Runs& Dropping::late_runs_of(Choice& choice, Position begin, Position end) {
  do {
    runs_.clear();
  } while (!make_late_runs(choice, begin, end));
  return runs_;
}

bool Dropping::make_late_runs(Choice& choice, Position begin, Position end) {
  const Reruns& r = *reruns_;
  for (Item item = 0; item < r.num_items(); ++item) there_[item] = choice[item] == Fate::stays;
  for (Position p = begin; p < end; ++p) {
    for (const Item item : r.takes[p]) {
      if (there_[item] == 0 && !make_again(item, p, choice)) return false;
    }
    runs_.push_back({p, false});
  }
  return true;
}

bool Dropping::let_stay(Unit unit, Choice& choice) const {
  for (const Item given : reruns_->gives[unit]) choice[given] = Fate::stays;
  return false;
}

// Depth first, without recursion: chains are as long as graphs are deep.
bool Dropping::make_again(Item item, Position slot, Choice& choice) {
  const Reruns& r = *reruns_;
  struct Open {
    Unit unit;
    std::size_t next;  // of what it needs
  };
  std::vector<Open> open = {{r.made_by[item], 0}};
  while (!open.empty()) {
    Open& top = open.back();
    if (top.next == 0 && slot > r.until[top.unit]) return let_stay(top.unit, choice);
    const std::span<const Item> needs = r.needs[top.unit];
    while (top.next < needs.size() && there_[needs[top.next]] != 0) ++top.next;
    if (top.next < needs.size()) {
      const Unit needed = r.made_by[needs[top.next++]];
      if (std::ranges::find(open, needed, &Open::unit) != open.end()) return let_stay(needed, choice);
      open.push_back({needed, 0});
      continue;
    }
    for (const Position member : r.members[top.unit]) runs_.push_back({member, true});
    for (const Item given : r.gives[top.unit]) there_[given] = 1;
    open.pop_back();
  }
  return true;
}

}  // namespace lowtide
