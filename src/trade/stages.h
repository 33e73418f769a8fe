// stages.h: the early ops as a chain of stages, cut where few items cross: between the layers of a network.
//
//   early   |  0 1 2  |  3 4 5  |  6 7 8  |         late   9 10    11 12    13 14
//              stage 0   stage 1   stage 2                 stage 2  stage 1  stage 0
//
// An early op belongs to the stage in which it lies, a unit to that of its last op. Late ops turn to the stages from
// the last to the first: where one takes something whose last early use is in a stage, that stage has come.
#pragma once

#include <cstdint>
#include <vector>

#include "trade/reruns.h"

namespace lowtide {

struct Stages {
  std::vector<Position> bounds;       // by stage its first op; the turn at the end
  std::vector<Position> comes_at;     // by stage: the first late op that turns to it or to one before it
  Lists<Unit> units;                  // by stage: those that can run again, each behind what it needs
  std::vector<Position> made;         // by item: the first op that makes it
  std::vector<Position> early_until;  // by item made early: the last early op that touches it

  std::size_t count() const { return comes_at.size(); }
  std::size_t of(Position early) const;
  bool is_made_early(Item item) const { return made[item] < bounds.back(); }
};

// How far apart stages end: in ops that make a candidate or are the last to use one, for only those count.
struct Spacing {
  std::size_t least_ops;  // between two ends
  std::size_t around;     // on both sides of an end, where no fewer candidates cross
};
inline constexpr Spacing kFine{1, 1};    // wherever fewer do not cross next to it
inline constexpr Spacing kCoarse{2, 4};  // about once a layer

// By item made early: the last early op that touches it.
std::vector<Position> last_early_uses(const Reruns& reruns);

// Where stages end, from 0 to the turn.
std::vector<Position> narrow_places(const Reruns& reruns, Spacing spacing);

// As they lie between `bounds`, from 0 to the turn.
Stages stages_between(const Reruns& reruns, std::vector<Position> bounds);

// Stages between narrow places; if those are more than `most`, several together.
Stages find_stages(const Reruns& reruns, Spacing spacing, std::size_t most);

}  // namespace lowtide
