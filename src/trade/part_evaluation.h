// part_evaluation.h: what a choice costs and holds that drops items of one part of the step only.
//
// All else stays, so that ops of other parts hold what they do anyway: only those of the part are followed, backwards,
// first the late ones and then the early ones. What is needed behind each of the two is known from how the step runs
// without any choice, and from what is needed before the late ones:
//
//   early     0 1 | 2 3 4 | 5 6        late     7 8 | 9 10 11 | 12 13
//                   part                              part
//           <------------- 2                        <------------- 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trade/drops.h"

namespace lowtide {

struct EvaluatedPart {
  Position early_begin = 0, early_end = 0;
  Position late_begin = 0, late_end = 0;
  Position from = 0, until = 0;  // late ops that are followed: the part's, and all that first need what is dropped
};

class PartEvaluation {
 public:
  explicit PartEvaluation(const Reruns& reruns);

  // The most that ops of the part hold, and what run again before them; and the cost. Compared with keep_all(),
  // `choice` may drop only what is first needed late from `from` to `until`. It is mended: see Dropping.
  Outcome of(const EvaluatedPart& part, Choice& choice);

  // By item: the first late op that takes it; the number of ops if none does.
  const std::vector<Position>& first_late_uses() const { return first_late_; }

  // How much work it takes, in steps of about a nanosecond.
  std::uint64_t steps_for(const EvaluatedPart& part) const;

 private:
  const Reruns* reruns_;
  Dropping dropping_;
  LiveItems live_;
  std::vector<Position> made_;        // by item
  std::vector<Position> last_early_;  // by item: its last early use
  std::vector<Position> first_late_;
  std::vector<Position> last_;  // by item: the last op that touches it; the number of ops if it is kept
};

}  // namespace lowtide
