// Builds a graph of two ops, plans it, verifies the plan and prints its arena.
#include <cstdio>
#include <utility>

#include "lowtide/plan.h"
#include "lowtide/verify.h"

int main() {
  using namespace lowtide;
  GraphBuilder builder;
  const BufferId x = *builder.add_buffer(
      {.size = Bytes(64), .residence = Residence::resident, .role = Role::input, .name = "x", .initial = true});
  const BufferId h = *builder.add_buffer({.size = Bytes(64), .name = "h"});
  const BufferId y = *builder.add_buffer({.size = Bytes(128), .name = "y"});
  const ValueId input = *builder.add_value(x, "float32", {{16}});
  if (!builder.add_op({.name = "relu", .reads = {input}, .writes = {h}}).ok()) return 1;
  const ValueId hidden = *builder.add_value(h, "float32", {{16}});
  if (!builder.add_op({.name = "concat", .reads = {hidden, hidden}, .writes = {y}}).ok()) return 1;
  const Result<Graph> graph = std::move(builder).build();
  if (!graph.ok()) return 1;

  const Result<Plan> made = plan(*graph);
  if (!made.ok()) return 1;
  if (!verify(*graph, *made).ok()) return 1;
  std::printf("arena %llu bytes, verified\n", static_cast<unsigned long long>(made->arena.count()));
}
