#include "lowtide/lifetimes.h"

#include <algorithm>
#include <string>

#include "base/shown_name.h"
#include "base/words.h"

namespace lowtide {
namespace {

Status check_permutation(const Graph& graph, std::span<const OpId> order) {
  std::vector<bool> seen(graph.num_ops());
  for (const OpId op : order) {
    if (op.index() >= graph.num_ops()) {
      return Error{ErrorCode::malformed_plan,
                   words("the order names op ", op, ", but the graph has ", graph.num_ops())};
    }
    if (seen[op.index()]) {
      return Error{ErrorCode::op_repeated, words("the order runs op ", op, " '", graph.op(op).name, "' twice")};
    }
    seen[op.index()] = true;
  }
  if (const auto missing = std::ranges::find(seen, false); missing != seen.end()) {
    const OpId op(static_cast<std::size_t>(missing - seen.begin()));
    return Error{ErrorCode::op_missing, words("the order never runs op ", op, " ", quoted_name(graph.op(op).name))};
  }
  return Done{};
}

}  // namespace

Result<Lifetimes> lifetimes(const Graph& graph, std::span<const OpId> order) {
  if (Status status = check_permutation(graph, order); !status.ok()) return status.error();
  const StepIndex first(0);
  const StepIndex last(order.size());

  Lifetimes result;
  result.lives.assign(graph.num_buffers(), {last, first});
  const auto touch = [&](VersionId version, StepIndex step) {
    Life& life = result.lives[graph.version(version).buffer.index()];
    life.begin = std::min(life.begin, step);
    life.end = std::max(life.end, step.next());
  };
  for (StepIndex step = first; step < last; step = step.next()) {
    const Op op = graph.op(order[step.index()]);
    for (const ValueId read : op.reads) touch(graph.value(read).version, step);
    for (const VersionId write : op.writes) touch(write, step);
  }

  std::vector<Bytes> born(order.size() + 1);
  std::vector<Bytes> dead(order.size() + 1);
  result.places.reserve(graph.num_buffers());
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    Life& life = result.lives[id.index()];
    result.places.push_back(id);
    if (!buffer.planned()) life.begin = first;
    if (buffer.kept) life.end = last;
    if (!buffer.planned()) continue;
    born[life.begin.index()] += buffer.size;
    dead[life.end.index()] += buffer.size;
  }

  result.live.reserve(order.size());
  Bytes live;
  for (StepIndex step = first; step < last; step = step.next()) {
    const Op op = graph.op(order[step.index()]);
    live += born[step.index()];
    live -= dead[step.index()];
    Bytes twice;
    for (const Reuse& reuse : op.reuses) {
      const bool ends = result.lives[reuse.from.index()].end == step.next() && !graph.buffer(reuse.from).kept;
      if (!ends || result.places[reuse.to.index()] != reuse.to) continue;
      result.places[reuse.to.index()] = result.places[reuse.from.index()];
      twice += graph.buffer(reuse.to).size;
    }
    result.live.push_back(live - twice + op.workspace);
    if (result.live.back() > result.peak) {
      result.peak = result.live.back();
      result.peak_step = step;
    }
  }
  return result;
}

Bytes operand_bound(const Graph& graph, std::span<const BufferId> away) {
  Bytes bound;
  std::vector<bool> placed(graph.num_buffers());  // by buffer: it needs a place in the arena
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next())
    placed[id.index()] = graph.buffer(id).planned();
  for (const BufferId id : away) placed[id.index()] = true;
  std::vector<OpId> counted(graph.num_buffers(), OpId(graph.num_ops()));  // by buffer: the last op it was counted for
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const Op op = graph.op(id);
    Bytes operands = op.workspace;
    const auto count = [&](VersionId version) {
      const BufferId buffer = graph.version(version).buffer;
      if (!placed[buffer.index()] || counted[buffer.index()] == id) return;
      counted[buffer.index()] = id;
      operands += graph.buffer(buffer).size;
    };
    for (const ValueId read : op.reads) count(graph.value(read).version);
    for (const VersionId write : op.writes) {
      const BufferId buffer = graph.version(write).buffer;
      if (std::ranges::find(op.reuses, buffer, &Reuse::to) == op.reuses.end()) count(write);
    }
    bound = std::max(bound, operands);
  }
  return bound;
}

std::vector<BufferId> alive_at(const Graph& graph, std::span<const OpId> order, const Lifetimes& lifetimes,
                               StepIndex step) {
  if (step.index() >= order.size()) return {};
  std::vector<BufferId> alive;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Life& life = lifetimes.lives[id.index()];
    if (graph.buffer(id).planned() && life.begin <= step && step < life.end) alive.push_back(id);
  }
  const auto is_taken_over = [&](BufferId id) {
    return std::ranges::any_of(graph.op(order[step.index()]).reuses, [&](const Reuse& reuse) {
      return reuse.from == id && lifetimes.places[reuse.to.index()] == lifetimes.places[id.index()];
    });
  };
  std::erase_if(alive, is_taken_over);
  return alive;
}

std::vector<Culprit> largest_at(const Graph& graph, std::span<const OpId> order, const Lifetimes& lifetimes,
                                StepIndex step, std::size_t count) {
  if (step.index() >= order.size()) return {};
  std::vector<BufferId> alive = alive_at(graph, order, lifetimes, step);
  std::ranges::stable_sort(alive, std::ranges::greater{}, [&](BufferId id) { return graph.buffer(id).size; });

  const Op op = graph.op(order[step.index()]);
  std::vector<Culprit> culprits;
  for (const BufferId id : alive) {
    if (culprits.size() == count) break;
    const Buffer buffer = graph.buffer(id);
    const OpId maker = *graph.version(buffer.versions.front()).writer;
    culprits.push_back({std::string(buffer.name), buffer.size, std::string(role_name(buffer.role)),
                        std::string(graph.op(maker).source)});
  }
  if (op.workspace > Bytes(0)) {
    const auto place = std::ranges::find_if(culprits, [&](const Culprit& other) { return other.size < op.workspace; });
    culprits.insert(place, {words("workspace of ", op.name), op.workspace, "workspace", std::string(op.source)});
    culprits.resize(std::min(culprits.size(), count));
  }
  return culprits;
}

}  // namespace lowtide
