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

}  // namespace

Tasks to_tasks(const Graph& graph) {
  Tasks tasks;
  tasks.needs = dependencies(graph);
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    tasks.workspace.push_back(static_cast<std::int64_t>(graph.op(id).workspace.count()));
  }
  const Lists<Task> users = users_of_buffers(graph);
  std::map<std::pair<std::vector<Task>, bool>, Held> known;
  std::vector<std::pair<std::size_t, Held>> touched;
  std::vector<std::pair<std::size_t, BufferId>> parts;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const std::span<const Task> own = users[id.index()];
    if (own.empty()) continue;
    const Buffer buffer = graph.buffer(id);
    const auto next = static_cast<Held>(tasks.size.size());
    const auto [place, fresh] = known.try_emplace({{own.begin(), own.end()}, buffer.kept}, next);
    if (fresh) {
      tasks.users.add(own);
      tasks.size.push_back(0);
      tasks.kept.push_back(buffer.kept);
      for (const Task task : own) touched.emplace_back(task, next);
    }
    tasks.size[place->second] += static_cast<std::int64_t>(buffer.size.count());
    parts.emplace_back(place->second, id);
  }
  tasks.touched = Lists<Held>::group(graph.num_ops(), touched);
  tasks.parts = Lists<BufferId>::group(tasks.size.size(), parts);
  return tasks;
}

std::vector<std::int64_t> held_while(const Tasks& tasks, std::span<const OpId> order) {
  std::vector<std::int64_t> while_running(tasks.count());
  std::vector<std::size_t> done(tasks.size.size());
  std::int64_t held = 0;
  for (const OpId op : order) {
    std::int64_t gone = 0;
    for (const Held buffer : tasks.touched[op.index()]) {
      if (done[buffer]++ == 0) held += tasks.size[buffer];
      if (done[buffer] == tasks.users[buffer].size() && !tasks.kept[buffer]) gone += tasks.size[buffer];
    }
    while_running[op.index()] = held + tasks.workspace[op.index()];
    held -= gone;
  }
  return while_running;
}

std::int64_t peak_of(const Tasks& tasks, std::span<const OpId> order) {
  const std::vector<std::int64_t> held = held_while(tasks, order);
  return held.empty() ? 0 : *std::max_element(held.begin(), held.end());
}

}  // namespace lowtide
