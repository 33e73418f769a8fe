#include "explain/scene.h"

#include <algorithm>
#include <utility>

#include "lowtide/eager.h"
#include "order/algorithms.h"
#include "rewrite/recompute.h"
#include "trade/regions.h"

namespace lowtide {
namespace {

void find_uses(Scene& scene) {
  scene.used_before.resize(scene.graph.num_buffers());
  scene.used_after.resize(scene.graph.num_buffers());
  scene.visit_uses([&](BufferId buffer, StepIndex step) {
    std::optional<StepIndex>& after = scene.used_after[buffer.index()];
    if (step <= scene.peak) {
      scene.used_before[buffer.index()] = step;
    } else if (!after) {
      after = step;
    }
  });
}

Result<Scene> make_scene(Graph graph, Order order, bool is_eager) {
  Result<Lifetimes> lives = lifetimes(graph, order);
  if (!lives.ok()) return lives.error();
  std::vector<StepIndex> step_of(order.size());
  Scene scene{std::move(graph), std::move(order), std::move(step_of), *std::move(lives), {}, StepIndex(0), {}, {}};
  for (std::size_t step = 0; step < scene.order.size(); ++step) {
    scene.step_of[scene.order[step].index()] = StepIndex(step);
  }
  std::vector<Bytes> comes(scene.order.size());
  Bytes resident;
  for (BufferId id(0); id.index() < scene.graph.num_buffers(); id = id.next()) {
    const Buffer buffer = scene.graph.buffer(id);
    if (buffer.planned()) continue;
    if (!is_eager || !is_left_by_step(scene.graph, buffer)) {
      resident += buffer.size;
      continue;
    }
    const StepIndex made = scene.step_of[scene.graph.version(buffer.versions.front()).writer->index()];
    scene.lives.lives[id.index()].begin = made;
    comes[made.index()] += buffer.size;
  }
  for (std::size_t step = 0; step < scene.order.size(); ++step) {
    resident += comes[step];
    scene.total.push_back(resident + scene.lives.live[step]);
    if (scene.total[step] > scene.total[scene.peak.index()]) scene.peak = StepIndex(step);
  }
  find_uses(scene);
  return scene;
}

}  // namespace

Bytes Scene::peak_without(const std::vector<Absence>& absences) const {
  std::vector<Bytes> goes(total.size() + 1), returns(total.size() + 1);
  for (const Absence& absence : absences) {
    goes[absence.begin.index()] += graph.buffer(absence.buffer).size;
    returns[absence.end.index()] += graph.buffer(absence.buffer).size;
  }
  Bytes absent, peak_bytes;
  for (std::size_t step = 0; step < total.size(); ++step) {
    absent += goes[step];
    absent -= returns[step];
    peak_bytes = std::max(peak_bytes, total[step] - absent);
  }
  return peak_bytes;
}

Result<Scene> eager_scene(const Graph& graph) {
  const Result<std::optional<Rewritten>> asked = with_regions(graph);
  if (!asked.ok()) return asked.error();
  Graph plain = (*asked ? (*asked)->graph : graph).without_reuses();
  Order order = first_to_last(plain.num_ops());
  return make_scene(std::move(plain), std::move(order), true);
}

Result<Scene> planned_scene(const Graph& graph, const Plan& plan) {
  Graph once = graph;
  Order order = plan.order;
  if (plan.order.size() != graph.num_ops()) {
    Result<Rewritten> rewritten = run_again(graph, plan.order);
    if (!rewritten.ok()) return rewritten.error();
    once = std::move(rewritten->graph);
    order = first_to_last(once.num_ops());
  }
  // A plan does not say whether results may lie in operands' bytes, but its peak does.
  Result<Scene> scene = make_scene(once, order, false);
  if (!scene.ok() || scene->lives.peak == plan.peak) return scene;
  return make_scene(once.without_reuses(), std::move(order), false);
}

}  // namespace lowtide
