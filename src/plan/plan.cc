#include "lowtide/plan.h"

#include <algorithm>
#include <utility>

#include "base/shown_name.h"
#include "base/words.h"
#include "lowtide/layout.h"
#include "lowtide/lifetimes.h"
#include "lowtide/order.h"
#include "lowtide/verify.h"
#include "order/algorithms.h"
#include "plan/arrange.h"
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
Result<Arranged> arrange_best(const Graph& graph, const BoundedOrder& best, const PlanOptions& options) {
  Result<Arranged> smallest = arrange(graph, "best", best, options);
  const auto offer = [&](const Graph& same) {
    const Result<Bytes> peak = program_peak(same);
    if (!smallest.ok() || !peak.ok() || *peak >= smallest->plan.arena) return;
    Result<Arranged> other = arrange(same, "program", {first_to_last(graph.num_ops()), best.bound}, options);
    if (other.ok() && other->plan.arena < smallest->plan.arena) smallest = std::move(other);
  };
  if (best.order != first_to_last(graph.num_ops())) offer(graph);
  const bool is_smallest = smallest.ok() && smallest->plan.arena == smallest->plan.bound;
  if (graph.has_reuses() && !is_smallest) offer(graph.without_reuses());
  return smallest;
}

std::string amount(Bytes bytes) {
  return words(format_bytes(bytes), " (", bytes, " bytes)");
}

// Where the peak is, and who holds it.
std::string peak_words(const Graph& graph, const Plan& plan, const Infeasible& why) {
  if (plan.order.empty()) return "";
  const Op op = graph.op(plan.order[why.step.index()]);
  std::string text = words("; the peak is at step ", why.step, ", op ", quoted_name(op.name));
  if (!op.source.empty()) text += words(" (", op.source, ")");
  for (std::size_t i = 0; i < why.culprits.size(); ++i) {
    const Culprit& culprit = why.culprits[i];
    text += words(i == 0 ? ", held by " : ", ", shown_name(culprit.name), " ", format_bytes(culprit.size));
    if (!culprit.source.empty()) text += words(" (", culprit.source, ")");
  }
  return text;
}

Status check_memory(const Graph& graph, const Plan& plan, Infeasible why, const PlanOptions& options, Bytes budget) {
  const Bytes needed = plan.resident + plan.arena;
  if (needed <= budget) return Done{};
  const std::string_view what = options.recompute == "none" ? "; no order and layout of these ops needs less than "
                                                            : "; whatever runs again, no plan needs less than ";
  std::string message = words("the memory budget is ", amount(budget), ", but the ",
                              options.recompute == "none" ? "plan" : "smallest plan found", " needs ", amount(needed),
                              ": ", format_bytes(plan.resident), " resident and an arena of ", format_bytes(plan.arena),
                              what, amount(why.bound), " in all", peak_words(graph, plan, why));
  return Error{ErrorCode::memory_infeasible, std::move(message), std::move(why)};
}

Status check_latency(const Plan& plan, Infeasible why, Nanos budget) {
  if (plan.time <= budget) return Done{};
  return Error{ErrorCode::latency_infeasible,
               words("the latency budget is ", budget, " ns, but the plan takes ", plan.time, " ns"), std::move(why)};
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

Result<Plan> plan_without_reuse(const Graph& graph, PlanOptions options) {
  options.reuse = true;  // there is none in the graph
  Result<Plan> made = plan(graph.without_reuses(), options);
  if (made.ok()) {
    made->provenance.graph = fingerprint(graph);
    return made;
  }
  Error error = made.error();
  if (error.code == ErrorCode::memory_infeasible) error.message += "; operands' bytes are not reused, as asked";
  return error;
}

Result<Plan> plan_with_regions(const Graph& graph, const Rewritten& asked, const PlanOptions& options) {
  const Result<Plan> made = plan(asked.graph, options);
  if (!made.ok()) return made.error();
  Plan translated = plan_of_original(graph, asked, *made);
  if (translated.provenance.recompute.empty()) translated.provenance.recompute = "regions";
  if (Status status = verify(graph, translated); !status.ok()) return status.error();
  return translated;
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
  const Result<PlanOptions> in_bytes = with_budget_in_bytes(graph, given);
  if (!in_bytes.ok()) return in_bytes.error();
  const PlanOptions& options = *in_bytes;
  if (!options.reuse) return plan_without_reuse(graph, options);
  if (options.recompute != "none") {
    // Also where nothing needs to run again: a name that is mistyped is an error on every graph.
    if (const Result<RecomputeAlgorithm> known = find_recompute(options); !known.ok()) return known.error();
    const Result<std::optional<Rewritten>> asked = with_regions(graph);
    if (!asked.ok()) return asked.error();
    if (*asked) return plan_with_regions(graph, **asked, options);
  }
  const Result<OrderAlgorithm> algorithm = find_order(options.order, options.others.orders);
  if (!algorithm.ok()) return algorithm.error();
  const Bytes memory_budget = options.memory_budget ? std::get<Bytes>(*options.memory_budget) : Bytes::max();

  Work work(kOrderSteps);
  Result<BoundedOrder> found = algorithm->run(graph, work);
  if (!found.ok()) return found.error();
  found->bound = std::max(found->bound, operand_bound(graph));
  Result<Arranged> arranged = options.order == "best" ? arrange_best(graph, *found, options)
                                                      : arrange(graph, options.order, *std::move(found), options);
  if (!arranged.ok()) return arranged.error();
  bind_operands(graph, arranged->plan);
  Traded chosen{std::move(arranged->plan), {}};
  chosen.peak = report_peak(graph, arranged->lives, chosen.plan);

  const Nanos latency_budget = options.latency_budget.value_or(Nanos::max());
  const bool too_large = chosen.plan.resident + chosen.plan.arena > memory_budget;
  const bool time_to_spend = !options.memory_budget && options.latency_budget && chosen.plan.time > Nanos(0);
  if (options.recompute != "none" && (too_large || (time_to_spend && chosen.plan.time <= latency_budget))) {
    Result<Traded> traded = too_large ? fastest_within(graph, chosen.plan.order, options, memory_budget)
                                      : smallest_within(graph, chosen.plan.order, options, latency_budget);
    if (!traded.ok()) return traded.error();
    if (too_large || traded->plan.arena < chosen.plan.arena) chosen = *std::move(traded);
  }
  Plan& plan = chosen.plan;
  if (Status status = check_memory(graph, plan, chosen.peak, options, memory_budget); !status.ok()) {
    return status.error();
  }
  if (Status status = check_latency(plan, chosen.peak, latency_budget); !status.ok()) return status.error();
  if (Status status = verify(graph, plan); !status.ok()) return status.error();
  plan.provenance.graph = fingerprint(graph);
  return std::move(plan);
}

}  // namespace lowtide
