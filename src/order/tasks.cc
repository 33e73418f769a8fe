#include "order/tasks.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lowtide {
namespace {

// By planned buffer with bytes: the ops that touch it, in program order.
Lists<Task> users_of_buffers(const Graph& graph) {
  std::vector<std::pair<std::size_t, Task>> pairs;
  std::vector<Task> last(graph.num_buffers(), static_cast<Task>(graph.num_ops()));
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const Op op = graph.op(id);
    const auto task = static_cast<Task>(id.index());
    const auto touch = [&](VersionId version) {
      const BufferId buffer = graph.version(version).buffer;
      const bool counts = graph.buffer(buffer).planned() && graph.buffer(buffer).size > Bytes(0);
      if (!counts || std::exchange(last[buffer.index()], task) == task) return;
      pairs.emplace_back(buffer.index(), task);
    };
    for (const ValueId read : op.reads) touch(graph.value(read).version);
    for (const VersionId write : op.writes) touch(write);
  }
  return Lists<Task>::group(graph.num_buffers(), pairs);
}

// By buffer: whether an op may make it in the bytes of another, or another in its bytes.
std::vector<bool> in_reuses(const Graph& graph) {
  std::vector<bool> found(graph.num_buffers());
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    for (const Reuse& reuse : graph.op(id).reuses) found[reuse.from.index()] = found[reuse.to.index()] = true;
  }
  return found;
}

}  // namespace

Tasks to_tasks(const Graph& graph) {
  Tasks tasks;
  tasks.needs = dependencies(graph);
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    tasks.workspace.push_back(static_cast<std::int64_t>(graph.op(id).workspace.count()));
  }
  const Lists<Task> users = users_of_buffers(graph);
  const std::vector<bool> reusable = in_reuses(graph);
  std::vector<Held> held_as(graph.num_buffers());
  std::map<std::pair<std::vector<Task>, bool>, Held> known;
  std::vector<std::pair<std::size_t, Held>> touched;
  std::vector<std::pair<std::size_t, BufferId>> parts;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const std::span<const Task> own = users[id.index()];
    if (own.empty()) continue;
    const Buffer buffer = graph.buffer(id);
    const auto next = static_cast<Held>(tasks.size.size());
    // What may be reused has a place of its own.
    const Held held =
        reusable[id.index()] ? next : known.try_emplace({{own.begin(), own.end()}, buffer.kept}, next).first->second;
    if (held == next) {
      tasks.users.add(own);
      tasks.size.push_back(0);
      tasks.kept.push_back(buffer.kept);
      for (const Task task : own) touched.emplace_back(task, next);
    }
    tasks.size[held] += static_cast<std::int64_t>(buffer.size.count());
    held_as[id.index()] = held;
    parts.emplace_back(held, id);
  }
  tasks.touched = Lists<Held>::group(graph.num_ops(), touched);
  std::vector<TaskReuse> reuses;
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    reuses.clear();
    for (const Reuse& reuse : graph.op(id).reuses) {
      if (graph.buffer(reuse.to).size == Bytes(0)) continue;
      reuses.push_back({held_as[reuse.from.index()], held_as[reuse.to.index()]});
    }
    std::ranges::stable_sort(reuses, {}, &TaskReuse::to);
    tasks.reuses.add(reuses);
  }
  tasks.parts = Lists<BufferId>::group(tasks.size.size(), parts);
  return tasks;
}

std::vector<std::int64_t> touched_bytes(const Tasks& tasks) {
  std::vector<std::int64_t> bytes(tasks.count());
  for (Task task = 0; task < tasks.count(); ++task) {
    for (const Held buffer : tasks.touched[task]) bytes[task] += tasks.size[buffer];
  }
  return bytes;
}

std::vector<std::int64_t> held_while(const Tasks& tasks, std::span<const OpId> order) {
  std::vector<std::int64_t> while_running(tasks.count());
  std::vector<std::size_t> done(tasks.size.size());
  std::int64_t held = 0;
  for (const OpId op : order) {
    std::int64_t gone = 0;
    const auto ends = [&](Held buffer) { return done[buffer] == tasks.users[buffer].size() && !tasks.kept[buffer]; };
    for (const Held buffer : tasks.touched[op.index()]) {
      if (done[buffer]++ == 0) held += tasks.size[buffer];
      if (ends(buffer)) gone += tasks.size[buffer];
    }
    const auto task = static_cast<Task>(op.index());
    while_running[task] = held + tasks.workspace[task] - reused(tasks, task, ends);
    held -= gone;
  }
  return while_running;
}

std::int64_t peak_of(const Tasks& tasks, std::span<const OpId> order) {
  const std::vector<std::int64_t> held = held_while(tasks, order);
  return held.empty() ? 0 : *std::max_element(held.begin(), held.end());
}

}  // namespace lowtide
