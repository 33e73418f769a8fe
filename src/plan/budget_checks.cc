#include "plan/budget_checks.h"

#include <string>
#include <tuple>
#include <utility>

#include "base/shown_name.h"
#include "base/words.h"

namespace lowtide {
namespace {

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

}  // namespace

Bytes memory_budget(const PlanOptions& options) {
  return options.memory_budget ? std::get<Bytes>(*options.memory_budget) : Bytes::max();
}

bool keeps_memory(const Draft& draft, const PlanOptions& options) {
  return draft.plan.resident + draft.plan.arena <= memory_budget(options);
}

bool keeps_latency(const Draft& draft, const PlanOptions& options) {
  return draft.plan.time <= options.latency_budget.value_or(Nanos::max());
}

bool asks_for_smallest(const PlanOptions& options) {
  return !options.memory_budget && options.latency_budget;
}

bool is_better(const Draft& one, const Draft& other, const PlanOptions& options) {
  const auto rank = [&](const Draft& draft) {
    return std::tuple(!keeps_memory(draft, options), !keeps_latency(draft, options), draft.plan.arena);
  };
  return rank(one) < rank(other);
}

Status check_memory(const Graph& graph, const Draft& draft, const PlanOptions& options) {
  if (keeps_memory(draft, options)) return Done{};
  const Plan& plan = draft.plan;
  const std::string_view what = options.swap ? "; whatever runs again or leaves memory, no plan needs less than "
                                : options.recompute == "none" ? "; no order and layout of these ops needs less than "
                                                              : "; whatever runs again, no plan needs less than ";
  std::string message =
      words("the memory budget is ", amount(memory_budget(options)), ", but the ",
            options.recompute == "none" ? "plan" : "smallest plan found", " needs ", amount(plan.resident + plan.arena),
            ": ", format_bytes(plan.resident), " resident and an arena of ", format_bytes(plan.arena), what,
            amount(draft.peak.bound), " in all", peak_words(graph, plan, draft.peak));
  if (!options.reuse) message += "; operands' bytes are not reused, as asked";
  return Error{ErrorCode::memory_infeasible, std::move(message), draft.peak};
}

Status check_latency(const Draft& draft, const PlanOptions& options) {
  if (keeps_latency(draft, options)) return Done{};
  return Error{
      ErrorCode::latency_infeasible,
      words("the latency budget is ", *options.latency_budget, " ns, but the plan takes ", draft.plan.time, " ns"),
      draft.peak};
}

}  // namespace lowtide
