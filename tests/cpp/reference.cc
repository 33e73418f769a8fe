#include "reference.h"

#include <algorithm>

namespace lowtide {
namespace {

Tag mix(Tag a, Tag b) {
  Tag x = a * 0x9E3779B97F4A7C15u + b;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  return x ^ (x >> 32);
}

Tag digest(Tag seed, const Contents& contents) {
  for (const Tag tag : contents) seed = mix(seed, tag);
  return seed;
}

Contents filled(Tag seed, std::size_t size) {
  Contents contents(size);
  for (std::size_t i = 0; i < size; ++i) contents[i] = mix(seed, i);
  return contents;
}

}  // namespace

Tag state_after(Tag state, OpId op) {
  return mix(state, op.value());
}

Contents initial_contents(const Graph& graph, BufferId buffer) {
  return filled(mix(1, buffer.value()), graph.buffer(buffer).size.count());
}

Contents computed(OpId op, std::size_t output, Tag inputs, std::size_t size) {
  return filled(mix(mix(2 + op.value(), output), inputs), size);
}

bool can_be_left_out(const Graph& graph, const Op& op, BufferId buffer) {
  if (!op.flags.may_skip_updates || graph.buffer(buffer).residence != Residence::resident) return false;
  return std::ranges::any_of(op.writes, [&](VersionId write) {
    return graph.version(write).buffer == buffer && graph.version(write).index > 0;
  });
}

void Inputs::add_state(Tag state) {
  for_results_ = for_updates_ = mix(for_updates_, state);
}

void Inputs::add(BufferId buffer, const Contents& contents) {
  if (!can_be_left_out(graph_, op_, buffer)) for_results_ = digest(for_results_, contents);
  for_updates_ = digest(for_updates_, contents);
}

Reference::Reference(const Graph& graph)
    : contents_(graph.num_versions()), random_state_(graph.num_ops()), network_state_(graph.num_ops()) {
  for (std::size_t v = 0; v < graph.num_versions(); ++v) {
    const Version version = graph.version(VersionId(v));
    if (!version.writer) contents_[v] = initial_contents(graph, version.buffer);
  }
  Tag random_state = kStart;
  Tag network_state = kStart;
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const Op op = graph.op(id);
    random_state_[id.index()] = random_state;
    network_state_[id.index()] = network_state;
    Inputs inputs(graph, op);
    if (op.flags.random) {
      inputs.add_state(random_state);
      random_state = state_after(random_state, id);
    }
    if (op.flags.collective) {
      inputs.add_state(network_state);
      network_state = state_after(network_state, id);
    }
    for (const ValueId read : op.reads) {
      const VersionId version = graph.value(read).version;
      inputs.add(graph.version(version).buffer, of(version));
    }
    for (const VersionId write : op.writes) {
      const Version version = graph.version(write);
      if (version.index > 0) inputs.add(version.buffer, of(graph.buffer(version.buffer).versions[version.index - 1]));
    }
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      const BufferId buffer = graph.version(op.writes[i]).buffer;
      contents_[op.writes[i].index()] = computed(id, i, inputs.of(buffer), graph.buffer(buffer).size.count());
    }
  }
}

}  // namespace lowtide
