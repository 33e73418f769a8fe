#include "trade/turnless.h"

#include <utility>

#include "trade/open_gaps.h"
#include "trade/polish.h"

namespace lowtide {

bool has_several_turns(const Graph& graph) {
  int turns = 0;
  bool before = true;
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const bool backward = graph.op(id).flags.backward;
    turns += backward && !before ? 1 : 0;
    before = backward;
  }
  return turns > 1;
}

Reruns without_turn(const Reruns& step) {
  Reruns free = step;
  free.turn = 0;
  free.repeatable = step.may_run_again;
  free.candidates = candidates_of(free);
  return free;
}

Trades polished_without_turn(const TradeBound& bound, const Reruns& step, Trades trades, Work& work) {
  const Reruns free = without_turn(step);
  with_part(work, work.left() / 4, [&](Work& part) {
    fill_up(free, trades, 0, part);
    return Done{};
  });
  polish_where_open(bound, free, trades, work);
  return trades;
}

}  // namespace lowtide
