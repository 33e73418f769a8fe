// tasks.h: a graph as far as the order of its ops decides about memory.
//
// A planned buffer is held from the first task that touches it to the last, or to the end if it is kept: while some of
// its users have run and some have not. Buffers with the same users are one. What runs backwards in time is the same
// problem again: the dependencies turn round, and what is kept is held from the start.
//
//   task     0   1   2   3        buffer a, touched by 0 and 1, is held from 0 to 1
//   a        [-----]              buffer b, touched by 1 and 3, from 1 to 3
//   b            [---------]      held while 1 runs: a, b and its workspace
//
// A task that may make a buffer in the bytes of another, and is the last to touch that, holds the two in one place: if
// 1 may make b in the bytes of a, a alone. What is held between two tasks is the same either way. Backwards in time,
// the last is the first: such a task holds what it opens in the place of what it made, whoever touched that before.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "graph/dependencies.h"
#include "lowtide/graph.h"
#include "lowtide/lists.h"
#include "lowtide/order.h"

namespace lowtide {

using Task = std::uint32_t;  // the index of an op
using Held = std::uint32_t;  // the index of a buffer, or of several with the same users

// A task may make `to` in the bytes of `from`, which is as large.
struct TaskReuse {
  Held from;
  Held to;
};

struct Tasks {
  Dependencies needs;
  std::vector<std::int64_t> workspace;  // by task

  Lists<Held> touched;             // by task: each once
  Lists<TaskReuse> reuses;         // by task: grouped by `to`
  Lists<Task> users;               // by buffer: the tasks that touch it, in program order; the first makes it
  std::vector<std::int64_t> size;  // by buffer, in bytes
  std::vector<bool> kept;          // by buffer
  Lists<BufferId> parts;           // by buffer: those of the graph that are one in it

  std::size_t count() const { return workspace.size(); }
};

Tasks to_tasks(const Graph& graph);

// The bytes that `task` holds once instead of twice, if it runs where ends(buffer) says which buffers nobody needs
// after it.
template <typename Ends>
std::int64_t reused(const Tasks& tasks, Task task, const Ends& ends) {
  std::int64_t bytes = 0;
  std::optional<Held> counted;
  for (const TaskReuse& reuse : tasks.reuses[task]) {
    if (counted == reuse.to || !ends(reuse.from)) continue;
    counted = reuse.to;
    bytes += tasks.size[reuse.to];
  }
  return bytes;
}

// By task: the bytes of the buffers that it touches.
std::vector<std::int64_t> touched_bytes(const Tasks& tasks);

// By task: the bytes held while it runs, its workspace included.
std::vector<std::int64_t> held_while(const Tasks& tasks, std::span<const OpId> order);

// The most of those.
std::int64_t peak_of(const Tasks& tasks, std::span<const OpId> order);

}  // namespace lowtide
