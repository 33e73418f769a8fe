#include "graph/dependencies.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace lowtide {

Dependencies dependencies(const Graph& graph) {
  std::vector<std::pair<std::size_t, OpId>> explicit_pairs;
  explicit_pairs.reserve(graph.edges().size());
  for (const Edge& edge : graph.edges()) explicit_pairs.emplace_back(edge.after.index(), edge.before);
  const Lists<OpId> explicit_edges = Lists<OpId>::group(graph.num_ops(), explicit_pairs);

  Dependencies result;
  std::vector<std::pair<std::size_t, OpId>> forward;
  std::vector<OpId> found;
  std::optional<OpId> last_random;
  std::optional<OpId> last_collective;
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const Op op = graph.op(id);
    found.assign(explicit_edges[id.index()].begin(), explicit_edges[id.index()].end());
    for (const ValueId value : op.reads) {
      const Version version = graph.version(graph.value(value).version);
      if (version.writer) found.push_back(*version.writer);
    }
    for (const VersionId write : op.writes) {
      const Version version = graph.version(write);
      if (version.index == 0) continue;
      const Version previous = graph.version(graph.buffer(version.buffer).versions[version.index - 1]);
      if (previous.writer) found.push_back(*previous.writer);
      for (const OpId reader : previous.readers) {
        if (reader != id) found.push_back(reader);
      }
    }
    if (op.flags.random) {
      if (last_random) found.push_back(*last_random);
      last_random = id;
    }
    if (op.flags.collective) {
      if (last_collective) found.push_back(*last_collective);
      last_collective = id;
    }
    std::ranges::sort(found);
    found.erase(std::unique(found.begin(), found.end()), found.end());
    for (const OpId before : found) forward.emplace_back(before.index(), id);
    result.predecessors.add(found);
  }
  result.successors = Lists<OpId>::group(graph.num_ops(), forward);
  return result;
}

}  // namespace lowtide
