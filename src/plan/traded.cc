#include "plan/traded.h"

#include <algorithm>
#include <utility>

#include "lowtide/lifetimes.h"
#include "order/algorithms.h"
#include "order/update_branches.h"
#include "plan/arrange.h"
#include "plan/peak_report.h"
#include "rewrite/recompute.h"
#include "search/trade_bound.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kBoundSteps = 500'000'000;

// The order whose peak is low before anything runs again may hold gradients for long where that peak is not. They must
// not stand in the way when the peak is lowered.
Order start_of(const Graph& graph, std::span<const OpId> order) {
  const Tasks tasks = to_tasks(graph);
  Order early = early_updates_order(graph, tasks, order);
  return peak_of(tasks, early) <= peak_of(tasks, order) ? early : Order(order.begin(), order.end());
}

Trades find_all(const Graph& graph, const Replays& replays, const TradeAlgorithm& algorithm) {
  Work work(trade_steps(graph));
  Trades trades = algorithm.run(graph, replays, work);
  Trade nothing_again{.cost = 0, .peak = replays.peak, .runs = {}};
  for (Position p = 0; p < replays.num_ops(); ++p) nothing_again.runs.push_back({p, false});
  trades.push_back(std::move(nothing_again));
  return best_of(std::move(trades));
}

class Trading {
 public:
  static Result<Trading> begin(const Graph& graph, std::span<const OpId> order, const PlanOptions& options) {
    const Result<TradeAlgorithm> algorithm = find_trades(options.recompute);
    if (!algorithm.ok()) return algorithm.error();
    return Trading(graph, order, options, *algorithm);
  }

  const Trades& trades() const { return trades_; }

  Result<Traded> make(const Trade& trade) const {
    Order steps;
    for (const Run& run : trade.runs) steps.push_back(replays_.order[run.op]);
    const Result<Rewritten> rewritten = run_again(graph_, steps);
    if (!rewritten.ok()) return rewritten.error();
    const Graph& expanded = rewritten->graph;
    Result<Arranged> arranged =
        arrange(expanded, options_.order, {first_to_last(expanded.num_ops()), Bytes(0)}, options_.layout);
    if (!arranged.ok()) return arranged.error();
    bind_operands(expanded, arranged->plan);
    arranged->plan.bound = std::min(bound_of(trade), arranged->plan.arena);
    arranged->plan.provenance.recompute = options_.recompute;
    Infeasible peak = report_peak(expanded, arranged->lives, arranged->plan);
    peak.bound = graph_.resident_bytes() + operand_bound(graph_);
    return Traded{plan_of_original(graph_, *rewritten, arranged->plan), std::move(peak)};
  }

 private:
  Trading(const Graph& graph, std::span<const OpId> order, const PlanOptions& options, const TradeAlgorithm& algorithm)
      : graph_(graph),
        options_(options),
        replays_(to_replays(graph, start_of(graph, order))),
        bound_(make_bound()),
        trades_(find_all(graph, replays_, algorithm)) {}

  TradeBound make_bound() const {
    Work work(kBoundSteps);
    return TradeBound(graph_, replays_, work);
  }

  Bytes bound_of(const Trade& trade) const {
    if (!replays_.costs_are_times) return operand_bound(graph_);
    return Bytes(static_cast<std::uint64_t>(bound_.least_peak(trade.cost)));
  }

  const Graph& graph_;
  const PlanOptions& options_;
  Replays replays_;
  TradeBound bound_;
  Trades trades_;
};

}  // namespace

Result<Trades> all_trades(const Graph& graph, std::span<const OpId> order, std::string_view algorithm) {
  const Result<TradeAlgorithm> found = find_trades(algorithm);
  if (!found.ok()) return found.error();
  return find_all(graph, to_replays(graph, start_of(graph, order)), *found);
}

Result<Traded> fastest_within(const Graph& graph, std::span<const OpId> order, const PlanOptions& options,
                              Bytes memory) {
  const Result<Trading> trading = Trading::begin(graph, order, options);
  if (!trading.ok()) return trading.error();
  std::optional<Traded> smallest;
  for (const Trade& trade : trading->trades()) {
    const Bytes least = graph.resident_bytes() + Bytes(static_cast<std::uint64_t>(trade.peak));
    const bool is_last = &trade == &trading->trades().back();
    if (least > memory && !is_last) continue;
    Result<Traded> made = trading->make(trade);
    if (!made.ok()) return made.error();
    const bool fits = graph.resident_bytes() + made->plan.arena <= memory;
    if (!smallest || made->plan.arena < smallest->plan.arena) smallest = *std::move(made);
    if (fits) break;
  }
  return *std::move(smallest);
}

Result<Traded> smallest_within(const Graph& graph, std::span<const OpId> order, const PlanOptions& options,
                               Nanos latency) {
  const Result<Trading> trading = Trading::begin(graph, order, options);
  if (!trading.ok()) return trading.error();
  std::uint64_t time = 0;
  for (const OpId op : order) time += graph.op(op).cost.count();
  const auto left = static_cast<std::int64_t>((latency - Nanos(time)).count());
  const Trade* lowest = &trading->trades().front();
  for (const Trade& trade : trading->trades()) {
    if (trade.cost <= left) lowest = &trade;
  }
  return trading->make(*lowest);
}

}  // namespace lowtide
