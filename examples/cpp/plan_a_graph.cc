// Plans a chain in which one result is needed again at the end, first freely, then within a budget: what does not fit
// is dropped and recomputed.
#include <cstdio>
#include <string>
#include <vector>

#include "lowtide/plan.h"

using namespace lowtide;

// An op that makes `size` bytes of what others made.
Result<BufferId> make(GraphBuilder& builder, std::string name, Bytes size, const std::vector<BufferId>& of) {
  const Result<BufferId> result = builder.add_buffer({.size = size, .name = name});
  if (!result.ok()) return result;
  OpSpec op{.name = name, .writes = {*result}, .cost = Nanos(1000)};
  for (const BufferId read : of) op.reads.push_back(*builder.add_value(read, "uint8", {}));
  const Result<OpId> added = builder.add_op(op);
  if (!added.ok()) return added.error();
  return result;
}

int main() {
  GraphBuilder builder;
  const BufferId a = *make(builder, "a", Bytes(1 << 20), {});
  const BufferId b = *make(builder, "b", Bytes(4 << 20), {a});
  const BufferId c = *make(builder, "c", Bytes(1 << 18), {b});
  if (!make(builder, "d", Bytes(1 << 18), {c, a}).ok()) return 1;
  const Result<Graph> graph = std::move(builder).build();
  if (!graph.ok()) return 1;

  const Result<Plan> free = plan(*graph);
  if (!free.ok()) return 1;
  std::printf("%zu steps in an arena of %s\n", free->order.size(), format_bytes(free->arena).c_str());

  const Result<Plan> within = plan(*graph, {.memory_budget = Bytes(5 << 20)});
  if (!within.ok()) {
    std::printf("%s\n", within.error().message.c_str());
    return 1;
  }
  std::printf("%zu steps in an arena of %s:", within->order.size(), format_bytes(within->arena).c_str());
  for (const OpId op : within->order) std::printf(" %s", std::string(graph->op(op).name).c_str());
  std::printf("\n");
}
