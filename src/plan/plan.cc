#include "lowtide/plan.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "lowtide/layout.h"
#include "lowtide/lifetimes.h"
#include "lowtide/order.h"
#include "lowtide/verify.h"
#include "order/algorithms.h"
#include "plan/arrange.h"
#include "plan/budget_checks.h"
#include "plan/in_parts.h"
#include "plan/peak_report.h"
#include "plan/traded.h"
#include "rewrite/recompute.h"
#include "trade/regions.h"

namespace lowtide {
namespace {

Result<Bytes> program_peak(const Graph& graph) {
  const Result<Lifetimes> lives = lifetimes(graph, first_to_last(graph.num_ops()));
  if (!lives.ok()) return lives.error();
  return lives->peak;
}

// The best order may lie badly, and so may places that are reused: program order, in which results have bytes of their
// own or not, is taken where its arena is smaller.
Result<Arranged> arrange_best(const Graph& graph, const BoundedOrder& best, const PlanOptions& options,
                              const Limits& limits) {
  Result<Arranged> smallest = arrange(graph, "best", best, options, limits);
  const auto offer = [&](const Graph& same) {
    const Result<Bytes> peak = program_peak(same);
    if (!smallest.ok() || !peak.ok() || *peak >= smallest->plan.arena) return;
    Result<Arranged> other = arrange(same, "program", {first_to_last(graph.num_ops()), best.bound}, options, limits);
    if (other.ok() && other->plan.arena < smallest->plan.arena) smallest = std::move(other);
  };
  if (best.order != first_to_last(graph.num_ops())) offer(graph);
  const bool is_smallest = smallest.ok() && smallest->plan.arena == smallest->plan.bound;
  if (graph.has_reuses() && !is_smallest) offer(graph.without_reuses());
  return smallest;
}

// The same options, a share of what eager needs as bytes: of this graph, not of one that is made from it.
Result<PlanOptions> with_budget_in_bytes(const Graph& graph, PlanOptions options) {
  if (!options.memory_budget || std::holds_alternative<Bytes>(*options.memory_budget)) return options;
  const Result<Bytes> whole = eager_bytes(graph);
  if (!whole.ok()) return whole.error();
  const Result<Bytes> resolved = resolve(*options.memory_budget, *whole);
  if (!resolved.ok()) return resolved.error();
  options.memory_budget = *resolved;
  return options;
}

Status check_options(const PlanOptions& options) {
  if (options.alignment == Bytes(0))
    return Error{ErrorCode::invalid_setting, "the alignment of a plan must be above 0"};
  if (!(options.effort > 0) || !std::isfinite(options.effort)) {
    return Error{ErrorCode::invalid_setting, "the effort of a plan must be a number above 0"};
  }
  // Also where nothing needs to run again: a name that is mistyped is an error on every graph.
  if (options.recompute == "none") return Done{};
  if (const Result<RecomputeAlgorithm> known = find_recompute(options); !known.ok()) return known.error();
  return Done{};
}

// -- the passes -------------------------------------------------------------------------------------------------------

// Order and layout, each op once.
Result<Draft> in_order(const Graph& graph, const PlanOptions& options, const Limits& limits) {
  const Result<OrderAlgorithm> algorithm = find_order(options.order, options.others.orders);
  if (!algorithm.ok()) return algorithm.error();
  Work work = limits.work(kOrderSteps);
  Result<BoundedOrder> found = algorithm->run(graph, work);
  if (!found.ok()) return found.error();
  found->bound = std::max(found->bound, operand_bound(graph));
  Result<Arranged> arranged = options.order == "best"
                                  ? arrange_best(graph, *found, options, limits)
                                  : arrange(graph, options.order, *std::move(found), options, limits);
  if (!arranged.ok()) return arranged.error();
  bind_operands(graph, arranged->plan);
  Draft draft{std::move(arranged->plan), {}};
  draft.peak = report_peak(graph, arranged->lives, draft.plan);
  return draft;
}

// Where a budget asks for it, some ops again, and some buffers leave memory.
Result<Draft> within_budgets(const Graph& graph, Draft once, const PlanOptions& options, const Limits& limits) {
  const bool too_large = !keeps_memory(once, options);
  if (too_large && options.swap) {
    return fastest_with_swaps(graph, std::move(once), options, limits, memory_budget(options));
  }
  const bool time_to_spend = asks_for_smallest(options) && once.plan.time > Nanos(0) && keeps_latency(once, options);
  if (options.recompute == "none" || (!too_large && !time_to_spend)) return once;
  Result<Draft> traded = too_large ? fastest_within(graph, once.plan.order, options, limits, memory_budget(options))
                                   : smallest_within(graph, once.plan.order, options, limits, *options.latency_budget);
  if (!traded.ok()) return traded.error();
  return too_large || traded->plan.arena < once.plan.arena ? *std::move(traded) : std::move(once);
}

Result<Draft> drafted(const Graph& graph, const PlanOptions& options, const Limits& limits) {
  Result<Draft> once = in_order(graph, options, limits);
  if (!once.ok()) return once.error();
  return within_budgets(graph, *std::move(once), options, limits);
}

// The same for the graph in which regions run again, as a plan of the one in which they ask for it.
Result<Draft> drafted_with_regions(const Graph& graph, const Rewritten& asked, const PlanOptions& options,
                                   const Limits& limits) {
  Result<Draft> draft = drafted(asked.graph, options, limits);
  if (!draft.ok()) return draft.error();
  draft->plan = plan_of_original(graph, asked, draft->plan);
  if (draft->plan.provenance.recompute.empty()) draft->plan.provenance.recompute = "regions";
  return draft;
}

// What regions ask for; but marks that were made to need less memory must never stand in the way of that.
Result<Draft> best_draft(const Graph& graph, const PlanOptions& options, const Limits& limits) {
  if (options.recompute == "none") return drafted(graph, options, limits);
  const Result<std::optional<Rewritten>> asked = with_regions(graph);
  if (!asked.ok()) return asked.error();
  if (!*asked) return drafted(graph, options, limits);
  Result<Draft> marked = drafted_with_regions(graph, **asked, options, limits);
  if (!marked.ok()) return marked.error();
  const bool kept = keeps_memory(*marked, options) && keeps_latency(*marked, options);
  if (kept && !asks_for_smallest(options)) return marked;
  Result<Draft> unmarked = drafted(graph, options, limits);
  if (!unmarked.ok()) return unmarked.error();
  return is_better(*unmarked, *marked, options) ? unmarked : marked;
}

}  // namespace

double Plan::fragmentation() const {
  if (arena == Bytes(0)) return 0.0;
  return static_cast<double>((arena - peak).count()) / static_cast<double>(arena.count());
}

double Plan::gap() const {
  if (bound == Bytes(0)) return 0.0;
  return static_cast<double>((arena - bound).count()) / static_cast<double>(bound.count());
}

std::vector<BufferId> kept_between_steps(const Graph& graph) {
  std::vector<BufferId> kept;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    const bool is_state =
        buffer.role == Role::parameter || buffer.role == Role::gradient || buffer.role == Role::optimizer_state;
    if (is_state && !buffer.planned()) kept.push_back(id);
  }
  return kept;
}

bool is_exact(const Graph& graph, const Plan& plan) {
  for (std::size_t step = 0; step < plan.parts.size(); ++step) {
    const auto [axis, part] = plan.parts[step];
    if (part.count == 1) continue;
    const std::span<const PartCount> counts = graph.axis(plan.order[step], axis).counts;
    if (!std::ranges::find(counts, part.count, &PartCount::count)->exact) return false;
  }
  return true;
}

Result<Bytes> eager_bytes(const Graph& graph) {
  const Result<std::optional<Rewritten>> asked = with_regions(graph);
  if (!asked.ok()) return asked.error();
  const Graph written = (*asked ? (*asked)->graph : graph).without_reuses();
  const Result<Lifetimes> lives = lifetimes(written, first_to_last(written.num_ops()));
  if (!lives.ok()) return lives.error();
  Bytes always = written.resident_bytes();
  std::vector<std::int64_t> change(written.num_ops() + 1);  // by step: bytes of gradients that a life begins or ends
  for (BufferId id(0); id.index() < written.num_buffers(); id = id.next()) {
    const Buffer buffer = written.buffer(id);
    if (!buffer.planned() || buffer.role != Role::gradient) continue;
    always += buffer.size;
    change[lives->lives[id.index()].begin.index()] += static_cast<std::int64_t>(buffer.size.count());
    change[lives->lives[id.index()].end.index()] -= static_cast<std::int64_t>(buffer.size.count());
  }
  Bytes peak;
  std::int64_t gradients = 0;
  for (std::size_t step = 0; step < lives->live.size(); ++step) {
    gradients += change[step];
    peak = std::max(peak, lives->live[step] - Bytes(static_cast<std::uint64_t>(gradients)));
  }
  return always + peak;
}

Result<Plan> plan(const Graph& graph, const PlanOptions& given) {
  if (Status status = check_options(given); !status.ok()) return status.error();
  const Result<PlanOptions> options = with_budget_in_bytes(graph, given);
  if (!options.ok()) return options.error();
  const Limits limits(*options);
  std::optional<Graph> without_reuse;
  if (!options->reuse) without_reuse = graph.without_reuses();
  const Graph& allowed = without_reuse ? *without_reuse : graph;

  Result<Draft> whole = best_draft(allowed, *options, limits);
  if (!whole.ok()) return whole.error();
  const DraftGraph draft_graph = [&](const Graph& divided) { return drafted(divided, *options, limits); };
  Result<Draft> draft = best_draft_in_parts(allowed, *std::move(whole), draft_graph, *options, limits);
  if (!draft.ok()) return draft.error();
  if (Status status = check_memory(allowed, *draft, *options); !status.ok()) return status.error();
  if (Status status = check_latency(*draft, *options); !status.ok()) return status.error();
  draft->plan.provenance.graph.reset();
  if (Status status = verify(allowed, draft->plan); !status.ok()) return status.error();
  draft->plan.provenance.graph = fingerprint(graph);
  return std::move(draft->plan);
}

}  // namespace lowtide
