#include "plan/given_parts.h"

#include <utility>

#include "lowtide/verify.h"
#include "rewrite/parts.h"
#include "rewrite/recompute.h"

namespace lowtide {

Result<Plan> plan_given_parts(const Graph& graph, const Splitting& splitting, PlanOptions options) {
  const Result<Rewritten> again = run_again(graph, splitting.steps);
  if (!again.ok()) return again.error();
  const Result<Divided> divided = run_in_parts(again->graph, splitting.splits);
  if (!divided.ok()) return divided.error();
  options.parts = Parts::none;
  const Result<Plan> made = plan(divided->graph, std::move(options));
  if (!made.ok()) return made.error();
  Plan whole = plan_of_original(graph, *again, plan_of_whole(again->graph, *divided, *made));
  whole.provenance.graph.reset();
  if (Status status = verify(graph, whole); !status.ok()) return status.error();
  return whole;
}

}  // namespace lowtide
