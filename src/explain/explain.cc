#include "lowtide/explain.h"

#include <algorithm>
#include <utility>

#include "explain/advice.h"
#include "explain/gains.h"
#include "explain/groups.h"
#include "explain/scene.h"
#include "lowtide/verify.h"

namespace lowtide {
namespace {

Explanation tell(const Scene& scene, std::string order, bool is_plan, std::optional<Bytes> planned,
                 const ExplainOptions& options) {
  Explanation told{};
  told.order = std::move(order);
  told.is_plan = is_plan;
  told.steps = scene.order.size();
  told.planned = planned;
  told.swap_per_second = options.swap_per_second;
  told.total = told.resident = scene.graph.resident_bytes();
  if (scene.order.empty()) return told;

  told.at = place_of(scene, scene.peak);
  told.total = scene.total[scene.peak.index()];
  told.resident = scene.resident[scene.peak.index()];
  told.away = scene.away_at_peak();
  for (const OpId op : scene.order) told.time += scene.graph.op(op).cost;
  told.has_times = told.time > Nanos(0);
  const Operands operands = operands_at_peak(scene);
  told.operands = operands.size;
  told.without_operands = operands.peak_without;

  std::vector<Group> groups = groups_at_peak(scene);
  told.groups = groups.size();
  for (const Group& group : groups) told.alive += group.members.size();
  const std::span<Group> shown(groups.data(), std::min(groups.size(), options.holders));
  add_gains(scene, shown, options.swap_per_second);
  for (const Group& group : shown) told.holders.push_back(group.holder);
  told.next = advice_on(scene, groups, told);
  return told;
}

Result<Bytes> planned_total(const Graph& graph) {
  const Result<Plan> best = plan(graph);
  if (!best.ok()) return best.error();
  return best->resident + best->arena;
}

}  // namespace

Result<Explanation> explain(const Graph& graph, const ExplainOptions& options) {
  const Result<Scene> scene = eager_scene(graph);
  if (!scene.ok()) return scene.error();
  const Result<Bytes> planned = planned_total(graph);
  if (!planned.ok()) return planned.error();
  return tell(*scene, "program", false, *planned, options);
}

Result<Explanation> explain(const Graph& graph, const Plan& plan, const ExplainOptions& options) {
  if (const Status right = verify(graph, plan); !right.ok()) return right.error();
  const Result<Scene> scene = planned_scene(graph, plan);
  if (!scene.ok()) return scene.error();
  std::optional<Bytes> planned;
  if (plan.provenance.order == "program") {
    const Result<Bytes> total = planned_total(graph);
    if (!total.ok()) return total.error();
    planned = *total;
  }
  return tell(*scene, plan.provenance.order, true, planned, options);
}

}  // namespace lowtide
