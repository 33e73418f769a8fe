#include "makers.h"

#include <string>

#include "unwrap.h"

namespace lowtide {

Graph graph_of(std::span<const Maker> makers) {
  GraphBuilder builder;
  std::vector<BufferId> made;
  for (const Maker& maker : makers) {
    const std::string name = "op" + std::to_string(made.size());
    OpSpec op{.name = name,
              .workspace = Bytes(maker.workspace),
              .cost = Nanos(maker.cost),
              .flags = maker.flags,
              .region = maker.region};
    for (const std::size_t read : maker.reads) op.reads.push_back(unwrap(builder.add_value(made[read], "uint8", {})));
    made.push_back(unwrap(builder.add_buffer({.size = Bytes(maker.size), .name = name})));
    op.writes = {made.back()};
    unwrap(builder.add_op(op));
  }
  return unwrap(std::move(builder).build());
}

}  // namespace lowtide
