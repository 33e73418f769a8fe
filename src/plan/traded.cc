#include "plan/traded.h"

#include <algorithm>
#include <utility>

#include "lowtide/lifetimes.h"
#include "order/algorithms.h"
#include "order/update_branches.h"
#include "plan/arrange.h"
#include "plan/peak_report.h"
#include "rewrite/recompute.h"
#include "search/condensed.h"
#include "search/pareto.h"
#include "search/trade_bound.h"
#include "search/trades.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kBoundSteps = 500'000'000;

// The order whose peak is low before anything runs again may hold gradients for long where that peak is not. They must
// not stand in the way when the peak is lowered.
Order with_early_updates(const Graph& graph, const Tasks& tasks, std::span<const OpId> order) {
  Order early = early_updates_order(graph, tasks, order);
  return peak_of(tasks, early) <= peak_of(tasks, order) ? early : Order(order.begin(), order.end());
}

// The order of the program is the better start where it holds no more. Where it does, it still may be once much runs
// again: an order of low peak also runs ops of the late part early.
std::vector<Order> starts_of(const Graph& graph, std::span<const OpId> order) {
  const Tasks tasks = to_tasks(graph);
  std::vector<Order> starts = {with_early_updates(graph, tasks, first_to_last(graph.num_ops()))};
  Order best = with_early_updates(graph, tasks, order);
  if (peak_of(tasks, best) < peak_of(tasks, starts.front())) starts.push_back(std::move(best));
  return starts;
}

// What one algorithm finds from all starts, with the work of one plan.
class Trading {
 public:
  static Result<Trading> begin(const Graph& graph, std::span<const OpId> order, std::string_view algorithm) {
    const Result<TradeAlgorithm> found = find_trades(algorithm);
    if (!found.ok()) return found.error();
    return Trading(graph, starts_of(graph, order), *found);
  }

  const std::vector<TradedOrder>& trades() const { return trades_; }

  Result<Traded> make(const TradedOrder& trade, const PlanOptions& options) const {
    const Result<Rewritten> rewritten = run_again(graph_, trade.steps);
    if (!rewritten.ok()) return rewritten.error();
    const Graph& expanded = rewritten->graph;
    Result<Arranged> arranged =
        arrange(expanded, options.order, {first_to_last(expanded.num_ops()), Bytes(0)}, options.layout);
    if (!arranged.ok()) return arranged.error();
    bind_operands(expanded, arranged->plan);
    arranged->plan.bound = std::min(bound_of(trade), arranged->plan.arena);
    arranged->plan.provenance.recompute = options.recompute;
    Infeasible peak = report_peak(expanded, arranged->lives, arranged->plan);
    peak.bound = graph_.resident_bytes() + operand_bound(graph_);
    return Traded{plan_of_original(graph_, *rewritten, arranged->plan), std::move(peak)};
  }

 private:
  Trading(const Graph& graph, const std::vector<Order>& starts, const TradeAlgorithm& algorithm) : graph_(graph) {
    for (const Order& start : starts) {
      const Replays replays = to_replays(graph, start);
      if (!bound_) {
        Work work(kBoundSteps);
        bound_.emplace(graph, replays, work);
        costs_are_times_ = replays.costs_are_times;
      }
      add_trades(replays, algorithm, trade_steps(graph.num_ops()) / starts.size());
    }
  }

  void add_trades(const Replays& replays, const TradeAlgorithm& algorithm, std::uint64_t steps) {
    const auto add = [&](std::int64_t cost, std::int64_t peak, const Runs& runs) {
      if (is_reached(trades_, cost, peak)) return;
      TradedOrder trade{.cost = cost, .peak = peak, .steps = {}};
      for (const Run& run : runs) trade.steps.push_back(replays.order[run.op]);
      add_point(trades_, std::move(trade));
    };
    const Condensed condensed = condense(replays);
    Work work(steps);
    add(0, replays.peak, each_once(replays));
    for (const Trade& trade : algorithm.run(*bound_, condensed.replays, work)) {
      add(trade.cost, trade.peak, condensed.spread(trade.runs));
    }
  }

  Bytes bound_of(const TradedOrder& trade) const {
    if (!costs_are_times_) return operand_bound(graph_);
    return Bytes(static_cast<std::uint64_t>(bound_->least_peak(trade.cost)));
  }

  const Graph& graph_;
  std::optional<TradeBound> bound_;
  bool costs_are_times_ = true;
  std::vector<TradedOrder> trades_;  // see pareto.h
};

}  // namespace

Result<std::vector<TradedOrder>> all_trades(const Graph& graph, std::span<const OpId> order,
                                            std::string_view algorithm) {
  const Result<Trading> trading = Trading::begin(graph, order, algorithm);
  if (!trading.ok()) return trading.error();
  return trading->trades();
}

Result<Traded> fastest_within(const Graph& graph, std::span<const OpId> order, const PlanOptions& options,
                              Bytes memory) {
  const Result<Trading> trading = Trading::begin(graph, order, options.recompute);
  if (!trading.ok()) return trading.error();
  std::optional<Traded> smallest;
  for (const TradedOrder& trade : trading->trades()) {
    const Bytes least = graph.resident_bytes() + Bytes(static_cast<std::uint64_t>(trade.peak));
    const bool is_last = &trade == &trading->trades().back();
    if (least > memory && !is_last) continue;
    Result<Traded> made = trading->make(trade, options);
    if (!made.ok()) return made.error();
    const bool fits = graph.resident_bytes() + made->plan.arena <= memory;
    if (!smallest || made->plan.arena < smallest->plan.arena) smallest = *std::move(made);
    if (fits) break;
  }
  return *std::move(smallest);
}

Result<Traded> smallest_within(const Graph& graph, std::span<const OpId> order, const PlanOptions& options,
                               Nanos latency) {
  const Result<Trading> trading = Trading::begin(graph, order, options.recompute);
  if (!trading.ok()) return trading.error();
  std::uint64_t time = 0;
  for (const OpId op : order) time += graph.op(op).cost.count();
  const auto left = static_cast<std::int64_t>((latency - Nanos(time)).count());
  const TradedOrder* lowest = &trading->trades().front();
  for (const TradedOrder& trade : trading->trades()) {
    if (trade.cost <= left) lowest = &trade;
  }
  return trading->make(*lowest, options);
}

}  // namespace lowtide
