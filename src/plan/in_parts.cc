#include "plan/in_parts.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "fission/fission_tree.h"
#include "lowtide/lifetimes.h"
#include "lowtide/verify.h"
#include "order/algorithms.h"
#include "plan/budget_checks.h"
#include "rewrite/parts.h"
#include "rewrite/recompute.h"
#include "search/best_first.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kSearchStepsAnOp = 6'000'000;
constexpr std::uint64_t kMostSearchSteps = 12'000'000'000;
constexpr std::size_t kMostMicroBatchOps = 10'000;  // each part an op: larger graphs take too long to plan

bool is_preferred(const Draft& one, const Draft& other, const PlanOptions& options) {
  const auto rank = [&](const Draft& draft) {
    const Plan& plan = draft.plan;
    const auto is_kept = std::tuple(!keeps_memory(draft, options), !keeps_latency(draft, options));
    const bool by_size = asks_for_smallest(options) || !keeps_memory(draft, options);
    return std::tuple(is_kept, by_size ? plan.arena.count() : plan.time.count());
  };
  return rank(one) < rank(other);
}

Nanos time_of_each_once(const Graph& graph) {
  Nanos time;
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) time += graph.op(id).cost;
  return time;
}

// Where ops that run in whole need too much, what an op may need falls until a plan keeps the budget. Which amounts are
// tried depends on the graph alone.
Status try_smaller_needs(const Graph& graph, const DraftGraph& drafted, const PlanOptions& options, Draft& best) {
  constexpr int kTries = 16;
  constexpr double kFall = 0.8;
  const Bytes left = memory_budget(options) - graph.resident_bytes();
  double most = static_cast<double>(operand_bound(graph).count());
  std::optional<std::vector<Split>> last;
  for (int i = 0; i < kTries && !keeps_memory(best, options); ++i, most *= kFall) {
    if (most > static_cast<double>(left.count())) continue;
    const std::optional<Splitting> splitting =
        splits_within(graph, Bytes(static_cast<std::uint64_t>(most)), options.parts == Parts::exact);
    if (!splitting || last == splitting->splits) continue;
    last = splitting->splits;
    Result<Draft> draft = drafted_in_parts(graph, *splitting, drafted);
    if (!draft.ok()) return draft.error();
    if (is_preferred(*draft, best, options)) best = *std::move(draft);
  }
  return Done{};
}

// The same splits, but nothing runs again.
Splitting without_repeats(const Splitting& splitting, std::size_t num_ops) {
  Splitting once;
  std::vector<std::optional<OpId>> step_of(splitting.steps.size());
  std::vector<bool> has_run(num_ops);
  for (std::size_t i = 0; i < splitting.steps.size(); ++i) {
    if (has_run[splitting.steps[i].index()]) continue;
    has_run[splitting.steps[i].index()] = true;
    step_of[i] = OpId(once.steps.size());
    once.steps.push_back(splitting.steps[i]);
  }
  for (const Split& split : splitting.splits) {
    Split kept{{}, split.count};
    for (const CutOp& one : split.ops) {
      if (step_of[one.op.index()]) kept.ops.push_back({*step_of[one.op.index()], one.axis});
    }
    once.splits.push_back(std::move(kept));
  }
  return once;
}

// Of each op as often as it runs, in whole or in parts.
Nanos time_of(const Graph& graph, const Splitting& splitting) {
  Nanos time;
  for (const OpId op : splitting.steps) time += graph.op(op).cost;
  for (const Split& split : splitting.splits) {
    for (const CutOp& one : split.ops) {
      const OpId op = splitting.steps[one.op.index()];
      const auto parts = std::ranges::find(graph.axis(op, one.axis).counts, split.count, &PartCount::count);
      time = time - graph.op(op).cost + Nanos(split.count * parts->cost.count());
    }
  }
  return time;
}

// Whether a plan with these splits could be taken: in time, and faster than the best so far if that keeps the budget.
bool may_be_better(const Graph& graph, const Splitting& splitting, const PlanOptions& options, const Draft& best) {
  const Nanos time = time_of(graph, splitting);
  if (time > options.latency_budget.value_or(Nanos::max())) return false;
  return !options.memory_budget || !keeps_memory(best, options) || time < best.plan.time;
}

// All of the step that runs along one dimension, which in most is the batch: micro-batches. No search of small regions
// gets there. From few parts to many.
Status try_micro_batches(const Graph& graph, const DraftGraph& drafted, const PlanOptions& options,
                         const Limits& limits, Draft& best) {
  const FissionTree tree(graph, options.parts == Parts::exact);
  const std::optional<RegionName> widest = tree.widest();
  if (!widest) return Done{};
  const std::vector<CutOp> ops = tree.ops(*widest);
  for (const std::uint32_t count : tree.counts(ops)) {
    if (graph.num_ops() + ops.size() * (count - 1) > kMostMicroBatchOps) break;
    const Splitting splitting{first_to_last(graph.num_ops()), {{ops, count}}};
    if (!may_be_better(graph, splitting, options, best)) continue;
    Result<Draft> draft = drafted_in_parts(graph, splitting, drafted);
    if (limits.stopped() || !draft.ok()) return Done{};  // some dimensions cannot be in parts as a whole
    if (is_preferred(*draft, best, options)) best = *std::move(draft);
  }
  return Done{};
}

// Of the states of a front, those that are worth a plan: the one that the budgets choose, and with other splits those
// next to it. What is traded where they are in parts may turn the scale.
std::vector<Splitting> worth_a_plan(const Graph& graph, const std::vector<FoundState>& front,
                                    const PlanOptions& options) {
  constexpr std::size_t kOthers = 2;
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < front.size(); ++i) {
    const bool fits_time =
        Nanos(static_cast<std::uint64_t>(front[i].cost)) <= options.latency_budget.value_or(Nanos::max());
    const Bytes bytes = graph.resident_bytes() + Bytes(static_cast<std::uint64_t>(front[i].peak));
    if (!fits_time) break;
    chosen = i;
    if (options.memory_budget && bytes <= memory_budget(options)) break;
  }
  std::vector<Splitting> found;
  std::vector<std::vector<Split>> known;
  const auto add = [&](const Splitting& state) {
    const Splitting once = without_repeats(state, graph.num_ops());
    if (once.splits.empty() || std::ranges::find(known, once.splits) != known.end()) return false;
    known.push_back(once.splits);
    found.push_back(once);
    return true;
  };
  if (add(front[chosen].splitting) && front[chosen].splitting.steps.size() > graph.num_ops()) {
    found.push_back(front[chosen].splitting);
  }
  std::size_t before = 0, after = 0;
  for (std::size_t i = chosen; i-- > 0 && before < kOthers;) before += add(front[i].splitting) ? 1 : 0;
  for (std::size_t i = chosen + 1; i < front.size() && after < kOthers; ++i) after += add(front[i].splitting) ? 1 : 0;
  return found;
}

// Regions that a search finds, and what is traded where they are in parts.
Status try_regions(const Graph& graph, const DraftGraph& drafted, const PlanOptions& options, const Limits& limits,
                   Draft& best) {
  StateSearchOptions search{.exact = options.parts == Parts::exact, .threads = options.threads};
  search.rules.run_again = options.recompute != "none";
  Work work = limits.work(std::min(kSearchStepsAnOp * graph.num_ops(), kMostSearchSteps));
  const std::vector<FoundState> front = search_front(graph, first_to_last(graph.num_ops()), search, work);
  for (const Splitting& splitting : worth_a_plan(graph, front, options)) {
    if (!may_be_better(graph, splitting, options, best)) continue;
    Result<Draft> draft = drafted_in_parts(graph, splitting, drafted);
    if (limits.stopped()) return draft.ok() ? Status(Done{}) : Status(draft.error());
    // The search looks at runs, not at all that a graph may ask for: what it finds need not be right.
    if (!draft.ok() || !is_preferred(*draft, best, options)) continue;
    draft->plan.provenance.graph.reset();
    if (verify(graph, draft->plan).ok()) best = *std::move(draft);
  }
  return Done{};
}

}  // namespace

Result<Draft> drafted_in_parts(const Graph& graph, const Splitting& splitting, const DraftGraph& drafted) {
  const Result<Rewritten> again = run_again(graph, splitting.steps);
  if (!again.ok()) return again.error();
  const Result<Divided> divided = run_in_parts(again->graph, splitting.splits);
  if (!divided.ok()) return divided.error();
  Result<Draft> draft = drafted(divided->graph);
  if (!draft.ok()) return draft.error();
  draft->plan = plan_of_original(graph, *again, plan_of_whole(again->graph, *divided, draft->plan));
  if (again->graph.num_ops() > graph.num_ops() && draft->plan.provenance.recompute.empty()) {
    draft->plan.provenance.recompute = "parts";
  }
  return draft;
}

Result<Draft> best_draft_in_parts(const Graph& graph, Draft whole, const DraftGraph& drafted,
                                  const PlanOptions& options, const Limits& limits) {
  const bool has_budget = options.memory_budget || options.latency_budget;
  if (options.parts == Parts::none || !graph.has_axes() || !has_budget) return whole;
  const bool is_kept = keeps_memory(whole, options);
  if (is_kept && !asks_for_smallest(options) && whole.plan.time <= time_of_each_once(graph)) return whole;
  if (!is_kept) {
    if (Status status = try_smaller_needs(graph, drafted, options, whole); !status.ok()) return status.error();
  }
  if (!options.swap && whole.plan.time > Nanos(0) && graph.resident_bytes() <= memory_budget(options)) {
    if (Status status = try_micro_batches(graph, drafted, options, limits, whole); !status.ok()) return status.error();
    if (Status status = try_regions(graph, drafted, options, limits, whole); !status.ok()) return status.error();
  }
  return whole;
}

}  // namespace lowtide
