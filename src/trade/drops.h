// drops.h: what is dropped at the turn, and what then runs again, and when.
//
// A *choice* says for each item whether it stays as long as anybody needs it, or is dropped after its last early use.
// What is dropped is made again right before its first late use, and then stays. To make it again, what that needs must
// be there: what was dropped of it is made again first.
#pragma once

#include <cstdint>
#include <vector>

#include "trade/reruns.h"

namespace lowtide {

enum class Fate : std::uint8_t { stays, dropped };
using Choice = std::vector<Fate>;  // by item; only candidates may be dropped

// Nothing is dropped that is used late. What is not, is dropped: where it is needed to make something else again, it is
// made again too.
Choice keep_all(const Reruns& reruns);

// What runs make again late is dropped, and all else as keep_all() has it.
Choice choice_of(const Reruns& reruns, const Runs& runs);

// Makes the runs of choices.
class Dropping {
 public:
  explicit Dropping(const Reruns& reruns) : reruns_(&reruns), there_(reruns.num_items()) {}

  // What cannot be made again when it is needed, because something that it is made from has changed by then or is made
  // from it, stays: the choice is mended. The runs stay valid until the next call.
  const Runs& runs_of(Choice& choice);

  // The same, of the late ops from `begin` to `end` only. Nothing that is dropped is needed before them.
  const Runs& late_runs_of(Choice& choice, Position begin, Position end);

 private:
  bool make_late_runs(Choice& choice, Position begin, Position end);
  bool make_again(Item item, Position slot, Choice& choice);
  bool let_stay(Unit unit, Choice& choice) const;

  const Reruns* reruns_;
  std::vector<std::uint8_t> there_;  // by item: from now on
  Runs runs_;
};

}  // namespace lowtide
