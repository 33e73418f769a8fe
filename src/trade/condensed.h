// condensed.h: a step without the ops that no trade concerns.
//
// Most ops of a training step can neither run again to any use, nor touch what is dropped or made again: those of the
// optimizer, and sums of gradients. Whatever is traded, a row of them holds the same bytes of its own. So a row becomes
// one op, whose workspace is what its fullest op holds beyond what the row takes and leaves:
//
//   order        a  b | c(b)  u  v  w  d(a)        u, v, w: an update; they touch neither a nor b
//   condensed    a  b | c(b)   [u v w]  d(a)
//
// (Case "ARowOfOpsThatNoTradeConcernsIsOne" of recompute_test.cc.) Peaks and costs are the same to the byte.
#pragma once

#include "lowtide/lists.h"
#include "trade/reruns.h"

namespace lowtide {

struct Condensed {
  Reruns reruns;               // `order` names the first op of each row
  Lists<Position> stands_for;  // by position in them: those of the step

  // Of the step, for runs of `reruns`.
  Runs spread(const Runs& runs) const;
};

Condensed condense(const Reruns& step);

}  // namespace lowtide
