#include "plan/traded.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/find_algorithm.h"
#include "base/pareto.h"
#include "lowtide/lifetimes.h"
#include "order/algorithms.h"
#include "order/update_branches.h"
#include "plan/arrange.h"
#include "plan/peak_report.h"
#include "plan/swapped.h"
#include "rewrite/recompute.h"
#include "trade/step_trades.h"
#include "trade/trade_bound.h"
#include "trade/trades.h"
#include "trade/turnless.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kBoundSteps = 500'000'000;

struct Start {
  std::string_view name;
  Order order;
};

// The order whose peak is low before anything runs again may hold gradients for long where that peak is not. They must
// not stand in the way when the peak is lowered.
Start with_early_updates(const Graph& graph, const Tasks& tasks, Start start, std::string_view name_if_changed) {
  const std::int64_t peak = peak_of(tasks, start.order);
  for (const auto updates : {early_updates_order, late_decay_order}) {
    Order changed = updates(graph, tasks, start.order);
    if (changed == start.order || peak_of(tasks, changed) > peak) continue;
    return {name_if_changed, std::move(changed)};
  }
  return start;
}

// The order of the program is the better start where it holds no more. Where it does, it still may be once much runs
// again: an order of low peak also runs ops of the late part early.
std::vector<Start> starts_of(const Graph& graph, std::span<const OpId> order, std::string_view name) {
  const Tasks tasks = to_tasks(graph);
  std::vector<Start> starts = {
      with_early_updates(graph, tasks, {"program", first_to_last(graph.num_ops())}, "early_updates")};
  Start best = with_early_updates(graph, tasks, {name, Order(order.begin(), order.end())}, name);
  if (peak_of(tasks, best.order) < peak_of(tasks, starts.front().order)) starts.push_back(std::move(best));
  return starts;
}

// The trade that a budget chooses of some, from the fastest to the smallest.
using Pick = std::function<const TradedOrder&(const std::vector<TradedOrder>& trades)>;

// The fastest whose peak is no higher; without such, the smallest.
Pick fastest_below(Bytes peak) {
  return [peak](const std::vector<TradedOrder>& trades) -> const TradedOrder& {
    const auto fits = [peak](const TradedOrder& trade) {
      return Bytes(static_cast<std::uint64_t>(trade.peak)) <= peak;
    };
    const auto found = std::ranges::find_if(trades, fits);
    return found != trades.end() ? *found : trades.back();
  };
}

// The smallest that costs no more; without such, the fastest.
Pick smallest_within_cost(std::int64_t cost) {
  return [cost](const std::vector<TradedOrder>& trades) -> const TradedOrder& {
    const TradedOrder* lowest = lowest_within(trades, cost);
    return lowest != nullptr ? *lowest : trades.front();
  };
}

// Steps as runs of the order; nothing if their first runs are another one.
std::optional<Runs> runs_of(const Reruns& reruns, const Steps& steps) {
  std::vector<Position> position(reruns.num_ops());
  for (Position p = 0; p < reruns.num_ops(); ++p) position[reruns.order[p].index()] = p;
  Runs runs;
  Position next = 0;
  for (const OpId op : steps) {
    if (op.index() >= position.size() || position[op.index()] > next) return std::nullopt;
    const bool again = position[op.index()] < next;
    runs.push_back({position[op.index()], again});
    if (!again) ++next;
  }
  if (next != reruns.num_ops()) return std::nullopt;
  return runs;
}

// What one algorithm finds from all starts, with the work of one plan; stopped and told of as the options ask.
class Trading {
 public:
  static Result<Trading> begin(const Graph& graph, std::span<const OpId> order, const PlanOptions& options,
                               const Limits& limits, const Pick& pick) {
    const Result<RecomputeAlgorithm> found = find_recompute(options);
    if (!found.ok()) return found.error();
    Trading trading(graph, options, limits);
    if (Status status = trading.search(starts_of(graph, order, options.order), *found, pick); !status.ok()) {
      return status.error();
    }
    if (limits.stopped()) return Error{ErrorCode::stopped, "planning was stopped before it had a plan"};
    return trading;
  }

  const std::vector<TradedOrder>& trades() const { return trades_; }

  Result<Draft> make(const TradedOrder& trade) const {
    const Result<Rewritten> rewritten = run_again(graph_, trade.steps);
    if (!rewritten.ok()) return rewritten.error();
    const Graph& expanded = rewritten->graph;
    Result<Arranged> arranged =
        arrange(expanded, trade.from, {first_to_last(expanded.num_ops()), Bytes(0)}, options_, limits_);
    if (!arranged.ok()) return arranged.error();
    bind_operands(expanded, arranged->plan);
    arranged->plan.bound = std::min(bound_of(trade), arranged->plan.arena);
    arranged->plan.provenance.recompute = options_.recompute;
    Infeasible peak = report_peak(expanded, arranged->lives, arranged->plan);
    peak.bound = graph_.resident_bytes() + operand_bound(graph_);
    return Draft{plan_of_original(graph_, *rewritten, arranged->plan), std::move(peak)};
  }

 private:
  Trading(const Graph& graph, const PlanOptions& options, const Limits& limits)
      : graph_(graph), options_(options), limits_(limits) {}

  Status search(const std::vector<Start>& starts, const RecomputeAlgorithm& algorithm, const Pick& pick) {
    const auto ours = std::ranges::find(trade_algorithms(), algorithm.name, &TradeAlgorithm::name);
    num_starts_ = starts.size();
    std::vector<TradedOrder> so_far;  // without their steps
    const Work::Listener listener = [&](std::int64_t cost, std::int64_t peak) {
      if (is_reached(so_far, cost, peak)) return;
      add_point(so_far, {cost, peak, {}, {}});
      options_.on_progress(found_so_far(pick(so_far)));
    };
    for (const Start& start : starts) {
      const Reruns reruns = to_reruns(graph_, start.order);
      if (!bound_) {
        Work work = limits_.work(kBoundSteps);
        bound_.emplace(graph_, reruns, work);
        if (reruns.costs_are_times) step_time_ = reruns.total_cost;
      }
      Work work = work_for(graph_.num_ops());
      if (options_.on_progress) work.tell(listener);
      if (ours != trade_algorithms().end()) {
        add(start.name, reruns, found_by_ours(*ours, reruns, work));
      } else {
        const Result<Trades> found = found_by_other(algorithm, reruns, work);
        if (!found.ok()) return found.error();
        add(start.name, reruns, *found);
      }
    }
    return Done{};
  }

  Work work_for(std::size_t ops) const { return limits_.work(trade_steps(ops) / num_starts_); }

  Trades found_by_ours(const TradeAlgorithm& algorithm, const Reruns& reruns, const Work& allowed) const {
    const FindTrades find = [&](const Reruns& part, Work& work) { return algorithm.run(*bound_, part, work); };
    Work work = allowed;
    Trades trades = trades_in(reruns, find, work);
    if (algorithm.anywhere) {
      Work again = allowed;
      for (Trade& trade : trades_in(without_turn(reruns), find, again)) trades.push_back(std::move(trade));
      trades = best_of(std::move(trades));
    }
    if (!has_several_turns(graph_)) return trades;
    for (Trade& trade : trades_in_windows(reruns, find, [this](std::size_t ops) { return work_for(ops); })) {
      trades.push_back(std::move(trade));
    }
    trades = best_of(std::move(trades));
    Work rest = allowed;
    if (algorithm.run == auto_trades) trades = polished_without_turn(*bound_, reruns, std::move(trades), rest);
    return trades;
  }

  // The step as it is, and what the caller's algorithm gives, measured here.
  Result<Trades> found_by_other(const RecomputeAlgorithm& algorithm, const Reruns& reruns, Work& work) const {
    const Result<std::vector<Steps>> found = algorithm.run(graph_, reruns.order, work);
    if (!found.ok()) return found.error();
    Work enough = Work::unlimited();
    Collected collected(reruns, enough);
    collected.add(each_once(reruns));
    for (const Steps& steps : *found) {
      const std::optional<Runs> runs = runs_of(reruns, steps);
      if (!runs) {
        return Error{ErrorCode::malformed_plan, words("recompute algorithm '", algorithm.name,
                                                      "': steps whose first runs are not the order that was given")};
      }
      collected.add(*runs);
    }
    return std::move(collected).best();
  }

  void add(std::string_view start, const Reruns& reruns, const Trades& trades) {
    for (const Trade& trade : trades) {
      if (is_reached(trades_, trade.cost, trade.peak)) continue;
      add_point(trades_,
                {.cost = trade.cost, .peak = trade.peak, .steps = steps_of(reruns, trade), .from = std::string(start)});
    }
  }

  FoundSoFar found_so_far(const TradedOrder& trade) const {
    FoundSoFar found{Bytes(static_cast<std::uint64_t>(trade.peak)), bound_of(trade), std::nullopt};
    if (step_time_) found.more_time = static_cast<double>(trade.cost) / static_cast<double>(*step_time_);
    return found;
  }

  Bytes bound_of(const TradedOrder& trade) const {
    if (!step_time_) return operand_bound(graph_);
    return Bytes(static_cast<std::uint64_t>(bound_->least_peak(trade.cost)));
  }

  const Graph& graph_;
  const PlanOptions& options_;
  const Limits& limits_;
  std::size_t num_starts_ = 1;
  std::optional<TradeBound> bound_;
  std::optional<std::int64_t> step_time_;  // none where the ops have no times
  std::vector<TradedOrder> trades_;        // see pareto.h
};

// The fastest whose resident bytes and arena are within `memory`; without such, the smallest.
Result<Draft> fastest_of(const Trading& trading, Bytes left) {
  const std::vector<TradedOrder>& trades = trading.trades();
  std::optional<Draft> smallest;
  // A layout may need more than its peak: then the next one is tried.
  for (const TradedOrder* trade = &fastest_below(left)(trades); trade != trades.data() + trades.size(); ++trade) {
    Result<Draft> made = trading.make(*trade);
    if (!made.ok()) return made.error();
    const bool fits = made->plan.arena <= left;
    if (!smallest || made->plan.arena < smallest->plan.arena) smallest = *std::move(made);
    if (fits) break;
  }
  return *std::move(smallest);
}

// Trades from the lowest cost on, each within the same memory by swapping.
class SwappedTrades {
 public:
  SwappedTrades(const Graph& graph, const PlanOptions& options, const Limits& limits, Bytes memory,
                std::optional<Nanos> to_beat)
      : graph_(graph), options_(options), limits_(limits), memory_(memory), to_beat_(to_beat) {
    for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) step_time_ += graph.op(id).cost;
  }

  // How long some take with swaps: first evenly, then around those that are the fastest. Updates run where the trade
  // has them; or at the end, where they need no room beside activations, but gradients wait.
  Status look_at(std::span<const TradedOrder> trades, bool late_updates) {
    const std::size_t last = trades.size() - 1;
    const std::size_t count = std::min(kFirst, trades.size());
    std::map<std::size_t, std::optional<Nanos>> times;  // none: not within the memory, or not fast enough
    const auto look = [&](std::size_t i) -> Status {
      if (times.contains(i)) return Done{};
      const Result<std::optional<Nanos>> time = time_of(trades[i], late_updates);
      if (!time.ok()) return time.error();
      times[i] = *time;
      return Done{};
    };
    for (std::size_t i = 0; i < count; ++i) {
      if (Status status = look(count == 1 ? 0 : i * last / (count - 1)); !status.ok()) return status;
    }
    for (int halving = 0; halving < kHalvings; ++halving) {
      std::vector<std::pair<Nanos, std::vector<std::size_t>>> between;  // by time: trades beside it
      for (auto known = times.begin(); known != times.end(); ++known) {
        if (!known->second) continue;
        auto& [time, beside] = between.emplace_back(*known->second, std::vector<std::size_t>());
        if (known != times.begin()) beside.push_back((std::prev(known)->first + known->first) / 2);
        if (std::next(known) != times.end()) beside.push_back((known->first + std::next(known)->first) / 2);
      }
      std::ranges::stable_sort(between, {}, [](const auto& one) { return one.first; });
      if (between.size() > kNearest) between.resize(kNearest);
      for (const auto& [time, beside] : between) {
        for (const std::size_t i : beside) {
          if (Status status = look(i); !status.ok()) return status;
        }
      }
    }
    return Done{};
  }

  // Of all that were looked at. None if none is faster than what was to beat.
  Result<std::optional<Draft>> fastest() {
    std::ranges::stable_sort(candidates_, {}, &Candidate::time);
    std::optional<Draft> best;
    std::size_t plans = 0;
    for (const Candidate& candidate : candidates_) {
      if (to_beat_ && candidate.time >= *to_beat_) break;
      if (best && plans == kPlans) break;
      ++plans;
      const Result<Rewritten> rewritten = run_again(graph_, candidate.trade->steps);
      if (!rewritten.ok()) return rewritten.error();
      const Graph& expanded = rewritten->graph;
      const Result<Swapping> swapping =
          Swapping::begin(expanded, order_of(expanded, candidate.late_updates), *options_.swap);
      if (!swapping.ok()) return swapping.error();
      Result<std::optional<Plan>> made = swapping->plan(candidate.trade->from, memory_, options_, limits_);
      if (!made.ok()) return made.error();
      // Its layout may have asked for more room, and so for more time.
      if (!*made || (to_beat_ && (*made)->time >= *to_beat_)) continue;
      to_beat_ = (*made)->time;
      if (expanded.num_ops() > graph_.num_ops()) (*made)->provenance.recompute = options_.recompute;
      best = Draft{plan_of_original(graph_, *rewritten, **made), {}};
    }
    return best;
  }

 private:
  static constexpr std::size_t kFirst = 16;   // trades that are looked at first
  static constexpr std::size_t kNearest = 4;  // of those, beside which others are looked at
  static constexpr int kHalvings = 3;
  static constexpr std::size_t kPlans = 3;  // that are made, or more until one is within the memory

  struct Candidate {
    Nanos time;
    const TradedOrder* trade;
    bool late_updates;
  };

  static Order order_of(const Graph& expanded, bool late_updates) {
    Order order = first_to_last(expanded.num_ops());
    return late_updates ? late_updates_order(expanded, to_tasks(expanded), order) : order;
  }

  Result<std::optional<Nanos>> time_of(const TradedOrder& trade, bool late_updates) {
    const Nanos alone = step_time_ + Nanos(static_cast<std::uint64_t>(trade.cost));
    if (step_time_ > Nanos(0) && to_beat_ && alone >= *to_beat_) return std::optional<Nanos>();
    if (limits_.stopped()) return Error{ErrorCode::stopped, "planning was stopped before it had a plan"};
    const Result<Rewritten> rewritten = run_again(graph_, trade.steps);
    if (!rewritten.ok()) return rewritten.error();
    Order order = order_of(rewritten->graph, late_updates);
    if (late_updates && order == order_of(rewritten->graph, false)) return std::optional<Nanos>();  // was looked at
    const Result<Swapping> swapping = Swapping::begin(rewritten->graph, std::move(order), *options_.swap);
    if (!swapping.ok()) return swapping.error();
    const std::optional<Timetable> table = swapping->timetable(memory_);
    if (!table) return std::optional<Nanos>();
    candidates_.push_back({table->time, &trade, late_updates});
    return std::optional(table->time);
  }

  const Graph& graph_;
  const PlanOptions& options_;
  const Limits& limits_;
  Bytes memory_;
  std::optional<Nanos> to_beat_;
  Nanos step_time_;
  std::vector<Candidate> candidates_;
};

}  // namespace

Result<RecomputeAlgorithm> find_recompute(const PlanOptions& options) {
  return find_algorithm("recompute", options.recompute, recompute_algorithms(),
                        std::span<const RecomputeAlgorithm>(options.others.recomputes), "none");
}

Result<std::vector<TradedOrder>> all_trades(const Graph& graph, std::span<const OpId> order,
                                            const PlanOptions& options) {
  const Limits limits(options);
  const Result<Trading> trading = Trading::begin(graph, order, options, limits, fastest_below(Bytes(0)));
  if (!trading.ok()) return trading.error();
  return trading->trades();
}

Result<Draft> fastest_within(const Graph& graph, std::span<const OpId> order, const PlanOptions& options,
                             const Limits& limits, Bytes memory) {
  const Result<Trading> trading =
      Trading::begin(graph, order, options, limits, fastest_below(memory - graph.resident_bytes()));
  if (!trading.ok()) return trading.error();
  return fastest_of(*trading, memory - graph.resident_bytes());
}

Result<Draft> fastest_with_swaps(const Graph& graph, Draft once, const PlanOptions& options, const Limits& limits,
                                 Bytes memory) {
  std::vector<TradedOrder> trades = {{.steps = once.plan.order, .from = options.order}};
  Draft without = std::move(once);
  if (options.recompute != "none") {
    const Bytes left = memory - graph.resident_bytes();
    const Result<Trading> trading = Trading::begin(graph, without.plan.order, options, limits, fastest_below(left));
    if (!trading.ok()) return trading.error();
    Result<Draft> made = fastest_of(*trading, left);
    if (!made.ok()) return made.error();
    without = *std::move(made);
    trades = trading->trades();
  }
  std::optional<Nanos> to_beat;
  if (without.plan.resident + without.plan.arena <= memory) to_beat = without.plan.time;
  SwappedTrades swapped(graph, options, limits, memory, to_beat);
  for (const bool late_updates : {false, true}) {
    if (Status status = swapped.look_at(trades, late_updates); !status.ok()) return status.error();
  }
  Result<std::optional<Draft>> fastest = swapped.fastest();
  if (!fastest.ok()) return fastest.error();
  if (*fastest) return **std::move(fastest);
  without.peak.bound = std::min(without.peak.bound, least_with_swaps(graph, *options.swap));
  return without;
}

Result<Draft> smallest_within(const Graph& graph, std::span<const OpId> order, const PlanOptions& options,
                              const Limits& limits, Nanos latency) {
  std::uint64_t time = 0;
  for (const OpId op : order) time += graph.op(op).cost.count();
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  const Pick pick = smallest_within_cost(static_cast<std::int64_t>(std::min((latency - Nanos(time)).count(), kMost)));
  const Result<Trading> trading = Trading::begin(graph, order, options, limits, pick);
  if (!trading.ok()) return trading.error();
  return trading->make(pick(trading->trades()));
}

}  // namespace lowtide
