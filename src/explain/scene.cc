#include "explain/scene.h"

#include <algorithm>
#include <utility>

#include "explain/block_graph.h"
#include "lowtide/eager.h"
#include "order/algorithms.h"
#include "rewrite/recompute.h"
#include "trade/regions.h"

namespace lowtide {
namespace {

// And who uses what before and after it.
void find_peak(Scene& scene) {
  scene.peak = StepIndex(static_cast<std::size_t>(std::ranges::max_element(scene.total) - scene.total.begin()));
  scene.used_before.assign(scene.graph.num_buffers(), std::nullopt);
  scene.used_after.assign(scene.graph.num_buffers(), std::nullopt);
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
  Scene scene{std::move(graph), std::move(order), std::move(step_of), *std::move(lives), {}, {}, StepIndex(0), {}, {}};
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
    scene.resident.push_back(resident);
    scene.total.push_back(resident + scene.lives.live[step]);
  }
  find_peak(scene);
  return scene;
}

// By buffer of the scene: the blocks in memory that stand in for it, in the order of their steps.
std::vector<std::vector<Life>> in_memory(const Scene& scene, const Plan& plan) {
  std::vector<std::vector<Life>> spans(scene.graph.num_buffers());
  const auto add = [&](BufferId buffer, BlockId id) {
    const Block& block = plan.blocks[id.index()];
    std::vector<Life>& own = spans[buffer.index()];
    if (own.empty() || own.back().begin != block.begin) own.push_back({block.begin, block.end});
  };
  for (StepIndex step(0); step.index() < scene.order.size(); step = step.next()) {
    const Op op = scene.graph.op(scene.order[step.index()]);
    for (std::size_t i = 0; i < op.reads.size(); ++i) {
      add(scene.graph.version(scene.graph.value(op.reads[i]).version).buffer, plan.reads[step.index()][i]);
    }
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      add(scene.graph.version(op.writes[i]).buffer, plan.writes[step.index()][i]);
    }
  }
  return spans;
}

// Takes what the plan has in tiers out of the totals.
void move_out(Scene& scene, const Plan& plan) {
  scene.away.resize(scene.graph.num_buffers());
  const std::vector<std::vector<Life>> spans = in_memory(scene, plan);
  std::vector<Scene::Absence> absences;
  for (BufferId id(0); id.index() < scene.graph.num_buffers(); id = id.next()) {
    if (spans[id.index()].empty()) continue;  // nobody uses it: it stays where it is
    const Life life = scene.lives.lives[id.index()];
    StepIndex from = life.begin;
    const auto is_away_until = [&](StepIndex until) {
      if (from >= until) return;
      scene.away[id.index()].push_back({from, until});
      absences.push_back({id, from, until});
    };
    for (const Life& span : spans[id.index()]) {
      is_away_until(span.begin);
      from = std::max(from, span.end);
    }
    is_away_until(life.end);
  }
  const std::vector<Bytes> absent = scene.absent(absences);
  for (std::size_t step = 0; step < scene.total.size(); ++step) scene.total[step] -= absent[step];
  scene.resident.assign(scene.total.size(), plan.resident);
  find_peak(scene);
}

Result<Scene> planned_scene(Graph graph, Order order, const Plan& plan) {
  Result<Scene> scene = make_scene(std::move(graph), std::move(order), false);
  if (scene.ok() && !plan.tiers.empty()) move_out(*scene, plan);
  return scene;
}

Result<Scene> scene_in_parts(const Graph& graph, const Plan& plan) {
  if (!plan.tiers.empty()) {
    return Error{ErrorCode::invalid_setting, "a plan with tiers that runs ops in parts cannot be explained yet"};
  }
  Result<Graph> blocks = graph_of_blocks(graph, plan);
  if (!blocks.ok()) return blocks.error();
  Order order = first_to_last(blocks->num_ops());
  return make_scene(*std::move(blocks), std::move(order), false);
}

}  // namespace

bool Scene::is_in_memory(BufferId buffer, StepIndex step) const {
  const auto has_step = [&](const Life& span) { return span.begin <= step && step < span.end; };
  if (!has_step(lives.lives[buffer.index()])) return false;
  return away.empty() || std::ranges::none_of(away[buffer.index()], has_step);
}

Bytes Scene::away_at_peak() const {
  Bytes bytes;
  for (std::size_t buffer = 0; buffer < away.size(); ++buffer) {
    for (const Life& span : away[buffer]) {
      if (span.begin <= peak && peak < span.end) bytes += graph.buffer(BufferId(buffer)).size;
    }
  }
  return bytes;
}

std::vector<Bytes> Scene::absent(const std::vector<Absence>& absences) const {
  std::vector<Bytes> goes(total.size() + 1), returns(total.size() + 1);
  for (const Absence& absence : absences) {
    goes[absence.begin.index()] += graph.buffer(absence.buffer).size;
    returns[absence.end.index()] += graph.buffer(absence.buffer).size;
  }
  std::vector<Bytes> bytes;
  Bytes now;
  for (std::size_t step = 0; step < total.size(); ++step) {
    now += goes[step];
    now -= returns[step];
    bytes.push_back(now);
  }
  return bytes;
}

Bytes Scene::peak_without(const std::vector<Absence>& absences) const {
  std::vector<Absence> in_memory;  // the parts of those that are not away as it is
  for (const Absence& absence : absences) {
    StepIndex from = absence.begin;
    const auto add_until = [&](StepIndex until) {
      if (from < until) in_memory.push_back({absence.buffer, from, until});
    };
    if (!away.empty()) {
      for (const Life& span : away[absence.buffer.index()]) {
        add_until(std::min(span.begin, absence.end));
        from = std::max(from, span.end);
      }
    }
    add_until(absence.end);
  }
  const std::vector<Bytes> gone = absent(in_memory);
  Bytes peak_bytes;
  for (std::size_t step = 0; step < total.size(); ++step) peak_bytes = std::max(peak_bytes, total[step] - gone[step]);
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
  if (!plan.parts.empty()) return scene_in_parts(graph, plan);
  Graph once = graph;
  Order order = plan.order;
  if (plan.order.size() != graph.num_ops()) {
    Result<Rewritten> rewritten = run_again(graph, plan.order);
    if (!rewritten.ok()) return rewritten.error();
    once = std::move(rewritten->graph);
    order = first_to_last(once.num_ops());
  }
  // A plan does not say whether results may lie in operands' bytes, but its peak does.
  Result<Scene> scene = planned_scene(once, order, plan);
  if (!scene.ok() || order.empty() || scene->total[scene->peak.index()] == plan.resident + plan.peak) return scene;
  return planned_scene(once.without_reuses(), std::move(order), plan);
}

}  // namespace lowtide
