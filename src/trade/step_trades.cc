#include "trade/step_trades.h"

#include <utility>

#include "trade/condensed.h"
#include "trade/windows.h"

namespace lowtide {

Trades trades_in(const Reruns& step, const FindTrades& find, Work& work) {
  const Condensed condensed = condense(step);
  Trades trades = {{.cost = 0, .peak = step.peak, .runs = each_once(step)}};
  if (condensed.reruns.num_ops() == 0) return trades;
  for (Trade& trade : find(condensed.reruns, work)) {
    trade.runs = condensed.spread(trade.runs);
    trades.push_back(std::move(trade));
  }
  return best_of(std::move(trades));
}

Trades trades_in_windows(const Reruns& step, const FindTrades& find,
                         const std::function<Work(std::size_t ops)>& work_for) {
  std::vector<Trades> by_window;
  for (const Window& window : windows_of(step)) {
    Work part = work_for(window.reruns.num_ops());
    for (Trade& trade : by_window.emplace_back(trades_in(window.reruns, find, part))) {
      trade.runs = window.spread(trade.runs);
    }
  }
  return together(by_window);
}

Steps steps_of(const Reruns& step, const Trade& trade) {
  Steps steps;
  for (const Run& run : trade.runs) steps.push_back(step.order[run.op]);
  return steps;
}

std::vector<Steps> steps_found(const Reruns& step, bool by_windows, const FindTrades& find, Work& work) {
  const std::uint64_t half = by_windows ? work.left() / 2 : work.left();
  Trades trades = with_part(work, half, [&](Work& part) { return trades_in(step, find, part); });
  if (by_windows) {
    const std::uint64_t an_op = work.left() / (step.num_ops() + 1);
    for (Trade& trade : trades_in_windows(step, find, [&](std::size_t ops) { return work.part(an_op * ops); })) {
      trades.push_back(std::move(trade));
    }
    trades = best_of(std::move(trades));
  }
  std::vector<Steps> found;
  for (const Trade& trade : trades) found.push_back(steps_of(step, trade));
  return found;
}

}  // namespace lowtide
