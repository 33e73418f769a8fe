// tasks.h: a graph as far as the order of its ops decides about memory.
//
// A planned buffer is held from the first task that touches it to the last, or to the end if it is kept: while some of
// its users have run and some have not. Buffers with the same users are one. What runs backwards in time is the same
// problem again: the dependencies turn round, and what is kept is held from the start.
//
//   task     0   1   2   3        buffer a, touched by 0 and 1, is held from 0 to 1
//   a        [-----]              buffer b, touched by 1 and 3, from 1 to 3
//   b            [---------]      held while 1 runs: a, b and its workspace
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/dependencies.h"
#include "lowtide/graph.h"
#include "lowtide/lists.h"
#include "lowtide/order.h"

namespace lowtide {

using Task = std::uint32_t;  // the index of an op
using Held = std::uint32_t;  // the index of a buffer, or of several with the same users

struct Tasks {
  Dependencies needs;
  std::vector<std::int64_t> workspace;  // by task

  Lists<Held> touched;             // by task: each once
  Lists<Task> users;               // by buffer: the tasks that touch it, in program order; the first makes it
  std::vector<std::int64_t> size;  // by buffer, in bytes
  std::vector<bool> kept;          // by buffer
  Lists<BufferId> parts;           // by buffer: those of the graph that are one in it

  std::size_t count() const { return workspace.size(); }
};

Tasks to_tasks(const Graph& graph);

// By task: the bytes held while it runs, its workspace included.
std::vector<std::int64_t> held_while(const Tasks& tasks, std::span<const OpId> order);

// The most of those.
std::int64_t peak_of(const Tasks& tasks, std::span<const OpId> order);

}  // namespace lowtide
