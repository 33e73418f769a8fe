#include "expect_runs.h"

#include <vector>

#include "gtest/gtest.h"
#include "lowtide/order.h"
#include "lowtide/verify.h"
#include "order/algorithms.h"
#include "plan/arrange.h"
#include "rewrite/recompute.h"
#include "unwrap.h"

namespace lowtide {

void expect_right(const Graph& graph, const Reruns& reruns, const Trade& trade) {
  std::vector<OpId> steps;
  for (const Run& run : trade.runs) steps.push_back(reruns.order[run.op]);
  const Rewritten rewritten = unwrap(run_again(graph, steps));
  const PlanOptions options{.layout = "greedy_by_size"};
  Arranged arranged = unwrap(
      arrange(rewritten.graph, "best", {first_to_last(rewritten.graph.num_ops()), Bytes(0)}, options, Limits(options)));
  EXPECT_EQ(static_cast<std::int64_t>(arranged.plan.peak.count()), trade.peak);
  bind_operands(rewritten.graph, arranged.plan);
  const Plan plan = plan_of_original(graph, rewritten, arranged.plan);
  const Status status = verify(graph, plan);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  std::uint64_t time = 0;
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) time += graph.op(id).cost.count();
  if (reruns.costs_are_times) {
    EXPECT_EQ(plan.time.count(), time + static_cast<std::uint64_t>(trade.cost));
  }
}

}  // namespace lowtide
