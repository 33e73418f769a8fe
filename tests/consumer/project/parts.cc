// Reads a graph, plans it with an order that was published, and prints the arena of the plan.
#include <cstdio>

#include "lowtide/files.h"
#include "lowtide/plan.h"
#include "lowtide/published.h"
#include "lowtide/verify.h"

int main() {
  using namespace lowtide;
  GraphBuilder builder;
  const BufferId h = *builder.add_buffer({.size = Bytes(64), .name = "h"});
  const BufferId y = *builder.add_buffer({.size = Bytes(128), .name = "y"});
  if (!builder.add_op({.name = "randn", .writes = {h}}).ok()) return 1;
  const ValueId hidden = *builder.add_value(h, "float32", {{16}});
  if (!builder.add_op({.name = "concat", .reads = {hidden, hidden}, .writes = {y}}).ok()) return 1;
  const Result<Graph> written = std::move(builder).build();
  if (!written.ok()) return 1;

  const Result<Graph> graph = parse_graph(graph_text(*written));
  if (!graph.ok()) return 1;
  const Result<Plan> made = plan(*graph, {.order = "roam", .layout = "sekiyama_program", .others = published()});
  if (!made.ok() || !verify(*graph, *made).ok()) return 1;
  std::printf("arena %llu bytes, verified\n", static_cast<unsigned long long>(made->arena.count()));
}
