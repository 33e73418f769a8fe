#include "random_graph.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/words.h"
#include "graph/dependencies.h"
#include "unwrap.h"

namespace lowtide {
namespace {

class Generator {
 public:
  Generator(std::mt19937_64& random, RandomGraphOptions options) : random_(random), options_(options) {}

  Graph generate() {
    const std::size_t ops = 3 + below(12);
    for (std::size_t i = 1 + below(3); i > 0; --i) add_buffer(Residence::resident, true, small_size());
    for (std::size_t i = 0; i < ops; ++i) add_op(i, ops);
    for (std::size_t i = below(3); i > 0; --i) {
      const std::size_t before = below(ops - 1);
      unwrap(builder_.add_edge(OpId(before), OpId(before + 1 + below(ops - before - 1))));
    }
    for (const BufferId buffer : readable_) {
      if (chance(0.1)) unwrap(builder_.keep(buffer));
    }
    return unwrap(std::move(builder_).build());
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  bool chance(double p) { return static_cast<double>(random_() % 1000) < 1000 * p; }
  Bytes small_size() { return Bytes(chance(0.3) ? 64 * (1 + below(3)) : 1 + below(200)); }

  BufferId add_buffer(Residence residence, bool initial, Bytes size) {
    const std::string name = words("b", planned_size_.size());
    const BufferId id = unwrap(builder_.add_buffer({.size = size,
                                                    .residence = residence,
                                                    .role = initial ? Role::parameter : Role::activation,
                                                    .name = name,
                                                    .initial = initial}));
    planned_size_.push_back(residence == Residence::planned ? std::optional(size) : std::nullopt);
    if (initial) readable_.push_back(id);
    return id;
  }

  BufferId any_readable() {
    // Mostly the newest, as programs do.
    const std::size_t recent = std::min<std::size_t>(readable_.size(), 4);
    return chance(0.6) ? readable_[readable_.size() - 1 - below(recent)] : readable_[below(readable_.size())];
  }

  void add_op(std::size_t index, std::size_t count) {
    const std::string name = words("op", index);
    OpSpec spec{.name = name, .cost = Nanos(below(100))};
    std::vector<BufferId> sources;  // planned buffers that it reads
    for (std::size_t i = below(4); i > 0; --i) {
      const BufferId buffer = any_readable();
      if (planned_size_[buffer.index()]) sources.push_back(buffer);
      const ValueId value = unwrap(builder_.add_value(buffer, "uint8", {}));
      spec.reads.push_back(value);
      if (chance(0.2)) spec.reads.push_back(unwrap(builder_.add_value(buffer, "int8", {})));  // a second view
    }
    if (chance(0.4)) {
      const BufferId buffer = any_readable();
      if (chance(0.7)) spec.reads.push_back(unwrap(builder_.add_value(buffer, "uint8", {})));
      spec.writes.push_back(buffer);
    }
    std::vector<BufferId> created;
    if (spec.writes.empty() || chance(0.3)) {
      for (std::size_t i = chance(0.2) ? 2 : 1; i > 0; --i) {
        const bool alike = !sources.empty() && chance(0.5);  // as large as what is read
        const Bytes size = alike ? *planned_size_[sources[below(sources.size())].index()] : small_size();
        created.push_back(add_buffer(chance(0.12) ? Residence::resident : Residence::planned, false, size));
      }
    }
    spec.writes.insert(spec.writes.end(), created.begin(), created.end());
    if (chance(0.3)) spec.workspace = small_size();
    spec.flags.random = chance(0.2);
    spec.flags.collective = chance(0.15);
    spec.flags.must_not_recompute = chance(0.1);
    spec.flags.may_skip_updates = chance(0.5);
    if (options_.regions) {
      const bool late = 2 * index > count;
      spec.flags.backward = late && chance(0.8);
      if (!late) spec.region = static_cast<std::uint32_t>(below(3));
      if (spec.region != 0) spec.flags.collective = spec.flags.must_not_recompute = false;
    }
    const OpId op = unwrap(builder_.add_op(spec));
    for (const BufferId to : created) {
      for (const BufferId from : sources) {
        if (planned_size_[to.index()] != planned_size_[from.index()] || chance(0.2)) continue;
        // Refused where the op writes `from`, or may make another result there already.
        static_cast<void>(builder_.add_reuse(op, from, to));
      }
    }
    readable_.insert(readable_.end(), created.begin(), created.end());
  }

  std::mt19937_64& random_;
  RandomGraphOptions options_;
  GraphBuilder builder_;
  std::vector<BufferId> readable_;
  std::vector<std::optional<Bytes>> planned_size_;  // by buffer; none: resident
};

}  // namespace

Graph random_graph(std::mt19937_64& random, RandomGraphOptions options) {
  return Generator(random, options).generate();
}

std::vector<OpId> random_order(const Graph& graph, std::mt19937_64& random) {
  const Dependencies depends = dependencies(graph);
  std::vector<std::size_t> waiting(graph.num_ops());
  std::vector<OpId> ready;
  for (OpId op(0); op.index() < graph.num_ops(); op = op.next()) {
    waiting[op.index()] = depends.predecessors[op.index()].size();
    if (waiting[op.index()] == 0) ready.push_back(op);
  }
  std::vector<OpId> order;
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const OpId op = ready.back();
    ready.pop_back();
    order.push_back(op);
    for (const OpId next : depends.successors[op.index()]) {
      if (--waiting[next.index()] == 0) ready.push_back(next);
    }
  }
  return order;
}

}  // namespace lowtide
